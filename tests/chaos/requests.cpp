// Scenarios of requests that must be served right or refused in order, and of signatures.
#include <algorithm>
#include <array>
#include <random>

#include "ranges.h"
#include "scenarios.h"
#include "subjects.h"

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

static void allocation(double bytes) {
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

static bool is_signed_as(const std::vector<uint32_t> &plain, const std::vector<uint32_t> &found, int device, int n_tokens, int k) {
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

// against a plain array of 64 places, 2000 times
void ranges_are_sets() {
    std::mt19937 random(7);
    const auto up_to = [&](unsigned n) { return static_cast<std::uintptr_t>(random() % n); };
    int n_wrong = 0;
    for (int round = 0; round < 2000; round++) {
        chaos::Ranges ranges;
        std::array<bool, 64> places{};
        for (int step = 0; step < 8; step++) {
            const std::uintptr_t begin = up_to(64), end = begin + up_to(static_cast<unsigned>(65 - begin));
            const bool is_added = up_to(3) != 0;
            is_added ? ranges.add(chaos::Range{begin, end}) : ranges.remove(chaos::Range{begin, end});
            std::fill(places.begin() + static_cast<long>(begin), places.begin() + static_cast<long>(end), is_added);
        }
        for (std::uintptr_t place = 0; place < 64; place++) n_wrong += ranges.touches(chaos::Range{place, place + 1}) == places[place] ? 0 : 1;
        const std::uintptr_t begin = up_to(60), end = begin + up_to(5);
        const bool touches =
            std::any_of(places.begin() + static_cast<long>(begin), places.begin() + static_cast<long>(end), [](bool is) { return is; });
        n_wrong += ranges.touches(chaos::Range{begin, end}) == touches ? 0 : 1;
    }
    say("wrong", n_wrong);
}
