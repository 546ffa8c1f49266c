#include "transfer/slot_memory.h"

#include <cstring>

#include "os/memory.h"

namespace slotpool {
namespace {

constexpr std::size_t kAlignment = 4096;
constexpr std::size_t kTailBytes = 512;
constexpr int kPoison = 0xFF;

std::size_t align_up(std::size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

SlotMemory::SlotMemory(const abi::Api &api, const StoredTensors &tensors, const SlabSource &source, int n_slots, bool poison)
    : api_(api), tensors_(tensors), n_slots_(n_slots), poison_(poison) {
    for (const auto &tensor : tensors_) {
        std::size_t shift = 0;
        shifts_.push_back(source.is_even(*tensor, shift) ? shift : 0);
        layouts_.push_back(source.layout(*tensor));
        strides_.push_back(source.room(*tensor, 1));
        offsets_.push_back(size_);
        slabs_.emplace_back();
        size_ += align_up(strides_.back() * static_cast<std::size_t>(n_slots) + kTailBytes);
    }
}

std::unique_ptr<SlotMemory> SlotMemory::allocate(const abi::Api &api, abi::Device *device, const StoredTensors &tensors, const SlabSource &source,
                                                 int n_slots, bool poison, std::string &error) {
    std::unique_ptr<SlotMemory> memory(new SlotMemory(api, tensors, source, n_slots, poison));
    memory->base_ = static_cast<std::uint8_t *>(os::reserve_memory(memory->size_));
    if (memory->base_ != nullptr) memory->buffer_ = api.dev_buffer_from_host_ptr(device, memory->base_, memory->size_, memory->size_);
    if (memory->buffer_ == nullptr) {
        error = std::to_string(n_slots) + " slots of " + tensors[0]->planned->name + " and its layer need " + std::to_string(memory->size_) +
                " bytes, the system has no such memory. Try fewer slots";
        return nullptr;
    }
    api.buffer_set_usage(memory->buffer_, abi::kUsageWeights);
    if (tensors[0]->is_on_disk()) os::keep_from_children(memory->base_, memory->size_);
    for (std::size_t i = 0; i < tensors.size(); i++) {
        for (int slot = 0; slot < n_slots; slot++) memory->slabs_[i].push_back(memory->room(i, slot) + memory->shifts_[i]);
    }
    for (int slot = 0; slot < n_slots; slot++) memory->poison(slot);
    return memory;
}

SlotMemory::~SlotMemory() {
    api_.buffer_free(buffer_);
    if (base_ != nullptr) os::release_memory(base_, size_);
}

std::uint8_t *SlotMemory::room(std::size_t index, int slot) const {
    return base_ + offsets_[index] + static_cast<std::size_t>(slot) * strides_[index];
}

void SlotMemory::poison(int slot) {
    if (!poison_) return;
    for (std::size_t i = 0; i < tensors_.size(); i++) std::memset(room(i, slot), kPoison, strides_[i]);
}

void SlotMemory::move_to_stride(std::size_t index, int slot) {
    std::uint8_t *place = room(index, slot) + shifts_[index];
    std::memmove(place, slab(index, slot), tensors_[index]->slab_bytes);
    set_slab(index, slot, place);
}

abi::Tensor SlotMemory::slot_tensor(std::size_t index) const {
    abi::Tensor tensor = expert_tensor(index, base_ + offsets_[index] + shifts_[index]);
    tensor.ne[2] = n_slots_;
    tensor.nb[2] = strides_[index];
    tensor.nb[3] = tensor.nb[2] * static_cast<std::size_t>(n_slots_);
    return tensor;
}

abi::Tensor SlotMemory::expert_tensor(std::size_t index, const std::uint8_t *slab) const {
    abi::Tensor tensor = tensors_[index]->shape;
    tensor.ne[2] = 1;
    tensor.nb[3] = tensor.nb[2];
    tensor.buffer = buffer_;
    tensor.data = const_cast<std::uint8_t *>(slab);
    tensor.extra = nullptr;
    if (layouts_[index] != nullptr) layouts_[index]->mark(tensor);
    return tensor;
}

}  // namespace slotpool
