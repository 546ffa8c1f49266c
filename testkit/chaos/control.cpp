// The control interface over the devices.
#include <algorithm>
#include <cstring>

#include "chaos.h"
#include "compute.h"
#include "hazards.h"
#include "slow_cpu.h"

using namespace chaos;

namespace {

constexpr const char *kCounterNames[] = {
#define CHAOS_NAME(name) #name,
    CHAOS_COUNTERS(CHAOS_NAME)
#undef CHAOS_NAME
};

bool is_device(int index) {
    if (index >= 0 && index < kMaxDevices) return true;
    set_error(nullptr, "Expected a device from 0 to " + std::to_string(kMaxDevices - 1) + ", found " + std::to_string(index));
    return false;
}

std::size_t copied(const std::string &from, char *text, std::size_t size) {
    if (size > 0) {
        const std::size_t n = std::min(from.size(), size - 1);
        std::memcpy(text, from.data(), n);
        text[n] = '\0';
    }
    return from.size();
}

}  // namespace

CHAOS_API int chaos_set(int index, const char *name, double value) {
    const Knob knob = knob_named(name);
    std::string why_not = refusal(knob, value);
    if (knob == k_devices && chaos_is_registered() != 0) why_not = "Expected the number of devices before ggml has them, found it afterwards";
    if (!why_not.empty()) {
        set_error(nullptr, why_not);
        return -1;
    }
    if (index != CHAOS_ALL_DEVICES && !is_device(index)) return -1;
    for (int i = 0; i < kMaxDevices; i++) {
        if (index == CHAOS_ALL_DEVICES || index == i) device(i).knobs.set(knob, value);
    }
    if (knob == k_cpu_ns_per_byte && value > 0 && chaos_is_registered() != 0) slow_cpu_down();
    return 0;
}

CHAOS_API double chaos_get(int index, const char *name) {
    const Knob knob = knob_named(name);
    return knob == kKnobs || !is_device(index) ? -1 : device(index).knobs[knob];
}

CHAOS_API int chaos_answer_free(int index, const uint64_t *answers, size_t n_answers) {
    if (!is_device(index)) return -1;
    const std::lock_guard<std::mutex> lock(device(index).mutex);
    device(index).free_answers.assign(answers, answers + n_answers);
    return 0;
}

CHAOS_API size_t chaos_n_counters(void) { return kCounters; }

CHAOS_API const char *chaos_counter_name(size_t index) { return index < kCounters ? kCounterNames[index] : ""; }

CHAOS_API int chaos_counters(int index, uint64_t *values, size_t n_values) {
    if (!is_device(index)) return -1;
    for (std::size_t i = 0; i < std::min<std::size_t>(n_values, kCounters); i++) values[i] = device(index).counters[static_cast<Counter>(i)];
    return 0;
}

CHAOS_API void chaos_reset(void) {
    for (int i = 0; i < kMaxDevices; i++) {
        device(i).counters.reset();
        const std::lock_guard<std::mutex> lock(device(i).mutex);
        device(i).graph_log.clear();
        device(i).n_logged = 0;
    }
    forget_hazards();
}

CHAOS_API size_t chaos_first_hazard(char *text, size_t size) { return copied(first_hazard(), text, size); }

CHAOS_API size_t chaos_error(char *text, size_t size) { return copied(last_error(), text, size); }

CHAOS_API size_t chaos_log(int index, char *text, size_t size) {
    if (!is_device(index)) return 0;
    const std::lock_guard<std::mutex> lock(device(index).mutex);
    return copied(device(index).graph_log, text, size);
}

CHAOS_API void chaos_signature(int index, int64_t n_tokens, int64_t k, uint8_t *bits, size_t n_bits) { signature(index, n_tokens, k, bits, n_bits); }
