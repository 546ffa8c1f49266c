// What scenarios are made of: devices, tensors in their memory, streams, and lines of "name value" for the test to read.
#pragma once

#include <dlfcn.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "chaos.h"

// The library under test, found by dlopen: the copy that ggml has loaded.
class Control {
   public:
    explicit Control(const char *path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {}
    void set(const char *knob, double value, int device = CHAOS_ALL_DEVICES) const {
        if (function<decltype(chaos_set)>("chaos_set")(device, knob, value) != 0) std::abort();
    }
    uint64_t count(const char *name, int device = 0) const {
        std::vector<uint64_t> values(function<decltype(chaos_n_counters)>("chaos_n_counters")());
        function<decltype(chaos_counters)>("chaos_counters")(device, values.data(), values.size());
        for (size_t i = 0; i < values.size(); i++) {
            if (std::strcmp(function<decltype(chaos_counter_name)>("chaos_counter_name")(i), name) == 0) return values[i];
        }
        std::abort();
    }
    std::string text(const char *name) const {
        char text[512];
        function<size_t(char *, size_t)>(name)(text, sizeof(text));
        return text;
    }
    template <class Fn>
    Fn *function(const char *name) const {
        return reinterpret_cast<Fn *>(dlsym(handle_, name));
    }

   private:
    void *handle_;
};

inline void say(const char *name, double value) { std::printf("%s %.9g\n", name, value); }
inline void say(const char *name, const std::string &value) { std::printf("%s %s\n", name, value.c_str()); }

// Tensors in one buffer of a device, and a stream of it.
class Bench {
   public:
    explicit Bench(const char *device, size_t n_tensors = 16) : device_(ggml_backend_dev_by_name(device)) {
        ctx = ggml_init({n_tensors * ggml_tensor_overhead() + 4 * ggml_graph_overhead(), nullptr, true});
        stream = ggml_backend_dev_init(device_, nullptr);
    }
    ~Bench() {
        ggml_backend_free(stream);
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
    Bench(const Bench &) = delete;
    Bench &operator=(const Bench &) = delete;

    ggml_tensor *vector(int64_t n = 64) const { return ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n); }
    void allocate() { buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_dev_buffer_type(device_)); }
    ggml_cgraph *graph(std::vector<ggml_tensor *> results) const {
        ggml_cgraph *made = ggml_new_graph(ctx);
        for (ggml_tensor *result : results) ggml_build_forward_expand(made, result);
        return made;
    }
    bool queue(ggml_cgraph *graph) const { return ggml_backend_graph_compute_async(stream, graph) == GGML_STATUS_SUCCESS; }
    void wait() const { ggml_backend_synchronize(stream); }
    ggml_backend_dev_t device() const { return device_; }

    ggml_context *ctx;
    ggml_backend_t stream;
    ggml_backend_buffer_t buffer = nullptr;

   private:
    ggml_backend_dev_t device_;
};

inline void fill(ggml_tensor *tensor, float value) {
    const std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)), value);
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
}

inline std::vector<float> values_of(const ggml_tensor *tensor) {
    std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, values.data(), 0, ggml_nbytes(tensor));
    return values;
}
