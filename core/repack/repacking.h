// The layouts that the CPU's faster kernels want of expert tensors, chosen as llama.cpp chooses them when it loads weights itself: ggml's
// CPU_REPACK buffer type, where the device computes the tensor's expert matmul from it.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/ggml_api.h"
#include "repack/interleave.h"
#include "repack/weight_types.h"
#include "store/reader.h"
#include "store/session.h"

namespace slotpool {

// The layout of one tensor's slabs. A slab is as many bytes as in the file.
class RepackedLayout final : public Sink {
   public:
    // A weight at memory that put() filled: the kernels know its layout by these.
    void mark(abi::Tensor &weight) const {
        weight.buffer = buffer_;
        weight.extra = traits_;
    }
    // Bytes of rows that belong together.
    std::size_t unit() const { return unit_; }
    void put(const std::uint8_t *bytes, std::size_t offset, std::size_t size, std::uint8_t *to) const override {
        interleave_->apply(bytes, size / row_bytes_, n_blocks_, to + offset);
    }

   private:
    friend class Repacking;
    RepackedLayout() = default;
    std::shared_ptr<const Interleave> interleave_;
    std::size_t row_bytes_ = 0;
    std::size_t n_blocks_ = 0;  // of a row
    std::size_t unit_ = 0;
    abi::Buffer *buffer_ = nullptr;
    void *traits_ = nullptr;
};

class Repacking {
   public:
    // `device` is the CPU. Where the engine has no such layouts no tensor has one.
    Repacking(const abi::Api &api, abi::Device *device, int op_mul_mat_id);
    ~Repacking();
    Repacking(const Repacking &) = delete;
    Repacking &operator=(const Repacking &) = delete;

    // nullptr: the tensor stays as the file has it. The answer lives as long as this.
    const RepackedLayout *of(const StoredTensor &stored);

   private:
    using Learned = std::pair<int, void *>;  // type and traits
    std::unique_ptr<RepackedLayout> make(const StoredTensor &stored);
    std::shared_ptr<const Interleave> interleave(int type, void *traits);

    const abi::Api &api_;
    int op_mul_mat_id_;
    WeightTypes types_;
    abi::Buffer *buffer_ = nullptr;                                               // of CPU_REPACK: what a weight says that it lies in
    std::unordered_map<std::uint64_t, std::unique_ptr<RepackedLayout>> layouts_;  // by the tensor's serial
    std::vector<std::pair<Learned, std::shared_ptr<const Interleave>>> learned_;
};

}  // namespace slotpool
