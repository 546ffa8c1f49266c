// What the chaos device must catch, one scenario each: scenarios LIBRARY NAME. Prints what happened; the test judges.
#include "scenarios.h"

#include <map>

const Control *g_control;

namespace {

void say_counts() {
    say("hazards", static_cast<double>(g_control->count("hazards") + g_control->count("hazards", 1)));
    say("first_hazard", g_control->text("chaos_first_hazard"));
    say("failures", static_cast<double>(g_control->count("failures")));
    say("error", g_control->text("chaos_error"));
}

#define SCENARIO(name) \
    { #name, name }
const std::map<std::string, void (*)()> kScenarios = {
    SCENARIO(read_after_waiting),
    SCENARIO(read_too_early),
    SCENARIO(input_changed_too_early),
    SCENARIO(input_read_while_queued),
    SCENARIO(second_stream_does_not_wait),
    SCENARIO(host_touches_device_memory),
    SCENARIO(source_of_a_write_changed_too_early),
    SCENARIO(destination_read_too_early),
    SCENARIO(buffer_freed_while_queued),
    SCENARIO(memory_begins_poisoned),
    SCENARIO(old_bytes_are_kept_for_queued_work),
    SCENARIO(type_is_known_by_its_fields),
    SCENARIO(tensor_on_another_device),
    SCENARIO(copy_between_devices),
    SCENARIO(index_out_of_range),
    SCENARIO(allocations_fail),
    SCENARIO(experts_written_while_queued),
    SCENARIO(signature_tells_device_and_shape),
    SCENARIO(time_is_taken),
    SCENARIO(cpu_takes_time),
    SCENARIO(ranges_are_sets),
    SCENARIO(many_threads),
    SCENARIO(several_wait_for_one),
};

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3 || ggml_backend_load(argv[1]) == nullptr) return 2;
    const Control control(argv[1]);
    g_control = &control;
    kScenarios.at(argv[2])();
    say_counts();
    return 0;
}
