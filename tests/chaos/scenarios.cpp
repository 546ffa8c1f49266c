// What the chaos device must catch, one scenario each: scenarios LIBRARY NAME. Prints what happened; the test judges.
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include "bench.h"

namespace {

const Control *g_control;

void say_counts() {
    say("hazards", static_cast<double>(g_control->count("hazards") + g_control->count("hazards", 1)));
    say("first_hazard", g_control->text("chaos_first_hazard"));
    say("failures", static_cast<double>(g_control->count("failures")));
    say("error", g_control->text("chaos_error"));
}

// y = 2 x, with x = 1 already there
struct Doubled : Bench {
    explicit Doubled(const char *device = "CHAOS0") : Bench(device), x(vector()), y(ggml_scale(ctx, x, 2)) {
        graph_ = graph({y});
        allocate();
        fill(x, 1);
    }
    bool queue() const { return Bench::queue(graph_); }
    ggml_tensor *x, *y;

   private:
    ggml_cgraph *graph_;
};

void read_after_waiting() {
    Doubled bench;
    bench.queue();
    bench.wait();
    say("value", values_of(bench.y)[0]);
}

void read_too_early() {
    Doubled bench;
    bench.queue();
    say("value", values_of(bench.y)[0]);
    bench.wait();
    say("afterwards", values_of(bench.y)[0]);
}

void input_changed_too_early() {
    Doubled bench;
    bench.queue();
    fill(bench.x, 5);
    bench.wait();
    say("value", values_of(bench.y)[0]);
}

void input_read_while_queued() {
    Doubled bench;
    bench.queue();
    say("value", values_of(bench.x)[0]);
}

void second_stream_does_not_wait() {
    Doubled bench;
    ggml_backend_t other = ggml_backend_dev_init(bench.device(), nullptr);
    bench.queue();
    std::vector<float> out(64);
    ggml_backend_tensor_get_async(other, bench.y, out.data(), 0, ggml_nbytes(bench.y));
    ggml_backend_synchronize(other);
    say("value", out[0]);
    ggml_backend_free(other);
}

void host_touches_device_memory() {
    const Doubled bench;
    say("about_to", "touch");
    std::fflush(stdout);
    say("value", *static_cast<volatile float *>(bench.x->data));
}

void source_of_a_write_changed_too_early() {
    const Doubled bench;
    std::vector<float> source(64, 3);
    ggml_backend_tensor_set_async(bench.stream, bench.x, source.data(), 0, ggml_nbytes(bench.x));
    source.assign(64, 4);
    bench.wait();
    say("value", values_of(bench.x)[0]);
}

void destination_read_too_early() {
    const Doubled bench;
    std::vector<float> out(64, 7);
    ggml_backend_tensor_get_async(bench.stream, bench.x, out.data(), 0, ggml_nbytes(bench.x));
    say("value", out[0]);
    bench.wait();
    say("afterwards", out[0]);
}

void buffer_freed_while_queued() {
    Doubled bench;
    bench.queue();
    ggml_backend_buffer_free(bench.buffer);
    bench.buffer = nullptr;
    bench.wait();
}

void memory_begins_poisoned() {
    Bench bench("CHAOS0");
    ggml_tensor *x = bench.vector();
    bench.allocate();
    say("value", values_of(x)[0]);
}

// queued work that reads the old bytes must not be poisoned by queued work that will write them
void old_bytes_are_kept_for_queued_work() {
    Doubled bench;
    ggml_cgraph *back = bench.graph({ggml_cpy(bench.ctx, bench.y, bench.x)});
    ggml_tensor *copied = ggml_graph_node(back, -1);
    ggml_backend_view_init(copied);
    bench.queue();
    static_cast<Bench &>(bench).queue(back);
    bench.queue();
    bench.wait();
    say("value", values_of(bench.y)[0]);
}

void type_is_known_by_its_fields() {
    const Doubled bench;
    ggml_backend_buffer_type_t own = ggml_backend_dev_buffer_type(bench.device());
    std::vector<char> copy(256);
    std::memcpy(copy.data(), own, 64);  // six functions, the device, the context
    auto *type = reinterpret_cast<ggml_backend_buffer_type_t>(copy.data());
    say("own", ggml_backend_dev_supports_buft(bench.device(), own));
    say("copy", ggml_backend_dev_supports_buft(bench.device(), type));
    say("host", ggml_backend_dev_supports_buft(bench.device(), ggml_backend_cpu_buffer_type()));
    say("other", ggml_backend_dev_supports_buft(ggml_backend_dev_by_name("CHAOS1"), own));
    say("is_host", ggml_backend_buft_is_host(own));
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, 100);
    say("type_of_buffer", ggml_backend_buffer_get_type(buffer) == type);
    ggml_backend_buffer_free(buffer);
}

void tensor_on_another_device() {
    const Doubled there("CHAOS1");
    ggml_backend_t here = ggml_backend_dev_init(ggml_backend_dev_by_name("CHAOS0"), nullptr);
    ggml_context *ctx = there.ctx;
    ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, there.y);
    say("is_done", ggml_backend_graph_compute(here, graph) == GGML_STATUS_SUCCESS);
    ggml_backend_free(here);
}

void copy_between_devices() {
    const Doubled from("CHAOS0"), to("CHAOS1");
    fill(from.x, 9);
    ggml_backend_tensor_copy(from.x, to.x);
    say("value", values_of(to.x)[0]);
    say("out_n", static_cast<double>(g_control->count("to_host_other_blocking_n", 0)));
    say("in_n", static_cast<double>(g_control->count("to_device_other_blocking_n", 1)));
}

void index_out_of_range() {
    Bench bench("CHAOS0");
    ggml_tensor *rows = ggml_new_tensor_2d(bench.ctx, GGML_TYPE_F32, 64, 4);
    ggml_tensor *ids = ggml_new_tensor_1d(bench.ctx, GGML_TYPE_I32, 2);
    ggml_cgraph *graph = bench.graph({ggml_get_rows(bench.ctx, rows, ids)});
    bench.allocate();
    const int32_t wrong[] = {1, 4};
    ggml_backend_tensor_set(ids, wrong, 0, sizeof(wrong));
    say("first", bench.queue(graph));
    bench.wait();
    say("second", bench.queue(graph));
}

void allocation(double bytes) {
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(ggml_backend_dev_by_name("CHAOS0"));
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, static_cast<size_t>(bytes));
    say(("got_" + std::to_string(static_cast<int>(bytes))).c_str(), buffer != nullptr);
}

void allocations_fail() {
    g_control->set("fail_above_bytes", 1000);
    allocation(1001);
    allocation(1000);
    g_control->set("fail_above_bytes", -1);
    g_control->set("fail_after_bytes", 3000);
    allocation(2000);
    allocation(1);
    g_control->set("fail_after_bytes", -1);
    g_control->set("total_bytes", 5000);
    allocation(2001);
    allocation(1999);
    say("failed", static_cast<double>(g_control->count("failed_allocations")));
}

// two experts of 64 x 8, three tokens that ask for one each
struct Experts : Bench {
    Experts() : Bench("CHAOS0") {
        weight = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 64, 8, 2);
        input = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 64, 1, 3);
        ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, 3);
        result = ggml_mul_mat_id(ctx, weight, input, ids);
        graph_ = graph({result});
        allocate();
        fill(weight, 0.25F);
        fill(input, 0.5F);
        const int32_t chosen[] = {1, 1, 1};
        ggml_backend_tensor_set(ids, chosen, 0, sizeof(chosen));
    }
    std::vector<uint32_t> computed() const {
        queue(graph_);
        wait();
        const std::vector<float> values = values_of(result);
        std::vector<uint32_t> bits(values.size());
        std::memcpy(bits.data(), values.data(), 4 * bits.size());
        return bits;
    }
    ggml_tensor *weight, *input, *ids, *result;

   private:
    ggml_cgraph *graph_;
};

bool is_signed_as(const std::vector<uint32_t> &plain, const std::vector<uint32_t> &found, int device, int n_tokens, int k) {
    uint8_t bits[8];
    g_control->function<decltype(chaos_signature)>("chaos_signature")(device, n_tokens, k, bits, 8);
    for (size_t i = 0; i < plain.size(); i++) {
        if ((plain[i] ^ found[i]) != bits[i % 8]) return false;
    }
    return true;
}

void signature_tells_device_and_shape() {
    const Experts bench;
    const std::vector<uint32_t> plain = bench.computed();
    g_control->set("sign", 1);
    const std::vector<uint32_t> found = bench.computed();
    say("device_0_tokens_3_k_1", is_signed_as(plain, found, 0, 3, 1));
    say("device_1", is_signed_as(plain, found, 1, 3, 1));
    say("tokens_1", is_signed_as(plain, found, 0, 1, 1));
    say("k_3", is_signed_as(plain, found, 0, 1, 3));
    say("expert_bytes", static_cast<double>(g_control->count("expert_bytes")));
    say("expert_rows", static_cast<double>(g_control->count("expert_rows")));
}

double seconds_of(const std::function<void()> &work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void time_is_taken() {
    const Doubled bench, second;
    const Experts experts;
    g_control->set("link_bytes_per_second", 256 / 0.01);
    const auto transfer = [](const Doubled &of) { return [&of] { fill(of.x, 1); }; };
    say("transfer", seconds_of(transfer(bench)));
    say("two_transfers_at_once", seconds_of([&] {
            std::thread other(transfer(second));
            transfer(bench)();
            other.join();
        }));
    g_control->set("link_bytes_per_second", 0);
    g_control->set("link_latency_ns", 2e7);
    say("latency", seconds_of(transfer(bench)));
    g_control->set("link_latency_ns", 0);
    g_control->set("expert_ns_per_byte", 10000);  // one expert of 2048 bytes
    say("experts", seconds_of([&] { experts.computed(); }));
    g_control->set("expert_ns_per_byte", 0);
    g_control->set("node_ns", 3e7);
    say("node", seconds_of([&] {
            bench.queue();
            bench.wait();
        }));
}

// slow_cpu: what the CPU device computes for one expert
void cpu_takes_time() {
    g_control->set("cpu_ns_per_byte", 10000);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
    ggml_context *ctx = ggml_init({1 << 20, nullptr, false});
    ggml_tensor *weight = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 64, 8, 2), *input = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 64, 1, 1);
    ggml_tensor *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, 1);
    std::memset(weight->data, 0, ggml_nbytes(weight));
    std::memset(input->data, 0, ggml_nbytes(input));
    static_cast<int32_t *>(ids->data)[0] = 1;
    ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, ggml_mul_mat_id(ctx, weight, input, ids));
    say("seconds", seconds_of([&] { ggml_backend_graph_compute(cpu, graph); }));
    g_control->set("cpu_ns_per_byte", 0);
    say("switched_off", seconds_of([&] { ggml_backend_graph_compute(cpu, graph); }));
    ggml_backend_free(cpu);
    ggml_free(ctx);
}

// every thread has streams, tensors and a host buffer of its own, on two devices; counters and links are shared
void many_threads() {
    const auto work = [](int number, int *n_wrong) {
        for (int round = 0; round < 20; round++) {
            const Doubled bench(number % 2 == 0 ? "CHAOS0" : "CHAOS1");
            std::vector<float> in(64, static_cast<float>(round)), out(64);
            ggml_backend_tensor_set_async(bench.stream, bench.x, in.data(), 0, ggml_nbytes(bench.x));
            bench.queue();
            ggml_backend_tensor_get_async(bench.stream, bench.y, out.data(), 0, ggml_nbytes(bench.y));
            bench.wait();
            *n_wrong += out[63] == 2 * static_cast<float>(round) ? 0 : 1;
        }
    };
    std::vector<int> n_wrong(4, 0);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back(work, i, &n_wrong[static_cast<size_t>(i)]);
    for (std::thread &thread : threads) thread.join();
    say("wrong", n_wrong[0] + n_wrong[1] + n_wrong[2] + n_wrong[3]);
    say("graphs", static_cast<double>(g_control->count("graphs") + g_control->count("graphs", 1)));
}

// one stream that several threads wait for
void several_wait_for_one() {
    const Doubled bench;
    int n_wrong = 0;
    for (int round = 0; round < 50; round++) {
        bench.queue();
        std::thread other([&] { bench.wait(); });
        bench.wait();
        other.join();
        n_wrong += values_of(bench.y)[0] == 2 ? 0 : 1;
    }
    say("wrong", n_wrong);
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
    SCENARIO(signature_tells_device_and_shape),
    SCENARIO(time_is_taken),
    SCENARIO(cpu_takes_time),
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
