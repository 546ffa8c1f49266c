// Scenarios of order: who waits for whom, and what happens where nobody does.
#include "scenarios.h"
#include "subjects.h"

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
    bench.queue();
    const std::vector<float> source(64, 50);
    ggml_backend_tensor_set_async(bench.stream, bench.x, source.data(), 0, ggml_nbytes(bench.x));
    bench.wait();
    say("before_the_write", values_of(bench.y)[0]);
}

static void write_expert(const Experts &bench, ggml_backend_t stream, size_t expert) {
    const std::vector<float> slab(64 * 8, 0.125F);
    const size_t bytes = ggml_nbytes(bench.weight) / 2;
    if (stream == nullptr) return ggml_backend_tensor_set(bench.weight, slab.data(), expert * bytes, bytes);
    ggml_backend_tensor_set_async(stream, bench.weight, slab.data(), expert * bytes, bytes);
    ggml_backend_synchronize(stream);
}

// expert 1 is the one that queued work will ask for
void experts_written_while_queued() {
    const Experts bench;
    ggml_backend_t uploads = ggml_backend_dev_init(bench.device(), nullptr);
    for (ggml_backend_t stream : {ggml_backend_t(nullptr), uploads}) {
        for (size_t expert : {0, 1}) {
            bench.queue();
            write_expert(bench, stream, expert);
            bench.wait();
            say(((stream == nullptr ? "blocking_" : "async_") + std::to_string(expert)).c_str(), static_cast<double>(g_control->count("hazards")));
        }
    }
    ggml_backend_free(uploads);
}
