// The slots' bytes of one group on its device, and how a slab gets into one of them.
//
// One aligned block per group: for each tensor n_slots slabs and a zeroed tail, which kernels that read past the last
// expert find finite. On the CPU device a transfer is a copy in the calling thread and complete when it returns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

class SlotMemory {
   public:
    // nullptr when the memory cannot be had; `error` then says what was asked for.
    static std::unique_ptr<SlotMemory> allocate(const abi::Api &api, abi::Device *device, const StoredTensors &tensors, int n_slots, bool poison,
                                                std::string &error);
    ~SlotMemory();
    SlotMemory(const SlotMemory &) = delete;
    SlotMemory &operator=(const SlotMemory &) = delete;

    // Fills `slot` of every tensor with the slabs of `expert`. Returns the bytes copied.
    std::size_t fill(int slot, int expert);
    // With poison on: overwrites the slot so that a stale read becomes NaN.
    void poison(int slot);

    // A tensor like the stored one, with its experts in slots: [ne0, ne1, n_slots].
    abi::Tensor slot_tensor(std::size_t index) const;
    std::uint8_t *slab(std::size_t tensor, int slot) const;

   private:
    SlotMemory(const abi::Api &api, const StoredTensors &tensors, int n_slots, bool poison);

    const abi::Api &api_;
    StoredTensors tensors_;
    std::vector<std::size_t> offsets_;
    int n_slots_;
    bool poison_;
    std::size_t size_ = 0;
    std::uint8_t *base_ = nullptr;
    abi::Buffer *buffer_ = nullptr;
};

}  // namespace slotpool
