// What scenarios work on: a vector that is doubled, experts that are multiplied.
#pragma once

#include "bench.h"

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
    void queue() const { Bench::queue(graph_); }
    std::vector<uint32_t> computed() const {
        queue();
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
