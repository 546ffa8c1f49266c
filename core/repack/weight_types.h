// Where llama.cpp's loader puts a weight that the CPU computes: in host memory of a device's own kind, in one of the CPU's own buffer types
// (CPU_REPACK and others), or where the file has it.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/ggml_api.h"

namespace slotpool {

class WeightTypes {
   public:
    // `cpu` is the CPU's device.
    WeightTypes(const abi::Api &api, abi::Device *cpu);
    ~WeightTypes();
    WeightTypes(const WeightTypes &) = delete;
    WeightTypes &operator=(const WeightTypes &) = delete;

    // CPU_REPACK; nullptr where the engine has none.
    abi::BufferType *repacked() const { return repacked_; }
    // Whether a weight [n_in, n_out, n_expert] that `op` (MUL_MAT_ID where it has ids, else MUL_MAT) multiplies with is put there.
    bool is_repacked(const abi::Tensor &weight, int op, bool has_ids) const;

   private:
    // One that the loader tries, with who is asked for it and an empty buffer to ask with.
    struct Candidate {
        abi::Device *device;
        abi::BufferType *type;
        abi::Buffer *empty;
    };
    void add(abi::Device *device, abi::BufferType *type);
    abi::Device *device_with_host_memory(abi::DeviceType kind) const;

    const abi::Api &api_;
    std::vector<Candidate> candidates_;  // in the loader's order, of which the first that can be had is taken
    abi::BufferType *repacked_ = nullptr;
};

// a [n_in, n_out, n_matrices] array without memory
abi::Tensor array_of(const abi::Api &api, int type, std::int64_t n_in, std::int64_t n_out, std::int64_t n_matrices);

}  // namespace slotpool
