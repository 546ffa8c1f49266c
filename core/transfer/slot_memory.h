// The bytes of a pool's slots: for each tensor of a group one array of rooms, a slot's room has one slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/ggml_api.h"
#include "store/session.h"
#include "transfer/slab_source.h"

namespace slotpool {

class SlotMemory {
   public:
    // nullptr when the memory cannot be had; `error` then says what was asked for.
    static std::unique_ptr<SlotMemory> allocate(const abi::Api &api, abi::Device *device, const StoredTensors &tensors, const SlabSource &source,
                                                int n_slots, bool poison, std::string &error);
    ~SlotMemory();
    SlotMemory(const SlotMemory &) = delete;
    SlotMemory &operator=(const SlotMemory &) = delete;

    // Where the source puts a slab of tensor `index` for `slot`.
    std::uint8_t *room(std::size_t index, int slot) const;
    // Where the slab in it begins: as the last fetch into the slot said.
    std::uint8_t *slab(std::size_t index, int slot) const { return slabs_[index][static_cast<std::size_t>(slot)]; }
    void set_slab(std::size_t index, int slot, std::uint8_t *begins) { slabs_[index][static_cast<std::size_t>(slot)] = begins; }
    // With poison on: overwrites the slot so that a stale read becomes NaN.
    void poison(int slot);

    // A tensor like the stored one, with its experts in slots: [ne0, ne1, n_slots]. It finds a slab that begins as far into its room as
    // its stride says.
    abi::Tensor slot_tensor(std::size_t index) const;
    bool is_at_stride(std::size_t index, int slot) const { return slab(index, slot) == room(index, slot) + shifts_[index]; }
    void move_to_stride(std::size_t index, int slot);
    // A tensor like the stored one, with the one expert whose slab is at `slab`.
    abi::Tensor expert_tensor(std::size_t index, const std::uint8_t *slab) const;

   private:
    SlotMemory(const abi::Api &api, const StoredTensors &tensors, const SlabSource &source, int n_slots, bool poison);

    const abi::Api &api_;
    StoredTensors tensors_;
    std::vector<std::size_t> offsets_;
    std::vector<std::size_t> strides_;                // bytes from room to room, by tensor
    std::vector<std::size_t> shifts_;                 // by tensor: how far into its room the stride expects a slab
    std::vector<const RepackedLayout *> layouts_;     // by tensor; nullptr: as the store has it
    std::vector<std::vector<std::uint8_t *>> slabs_;  // by tensor and slot
    int n_slots_;
    bool poison_;
    std::size_t size_ = 0;
    std::uint8_t *base_ = nullptr;
    abi::Buffer *buffer_ = nullptr;
};

}  // namespace slotpool
