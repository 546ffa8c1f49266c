// Scenarios of declared time and of threads.
#include <chrono>
#include <functional>
#include <thread>

#include "scenarios.h"
#include "subjects.h"

static double seconds_of(const std::function<void()> &work) {
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
