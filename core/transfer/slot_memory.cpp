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

SlotMemory::SlotMemory(const abi::Api &api, const StoredTensors &tensors, int n_slots, bool poison)
    : api_(api), tensors_(tensors), n_slots_(n_slots), poison_(poison) {
    for (const auto &tensor : tensors_) {
        offsets_.push_back(size_);
        size_ += align_up(tensor->slab_bytes * static_cast<std::size_t>(n_slots) + kTailBytes);
    }
}

std::unique_ptr<SlotMemory> SlotMemory::allocate(const abi::Api &api, abi::Device *device, const StoredTensors &tensors, int n_slots, bool poison,
                                                 std::string &error) {
    std::unique_ptr<SlotMemory> memory(new SlotMemory(api, tensors, n_slots, poison));
    memory->base_ = static_cast<std::uint8_t *>(os::reserve_memory(memory->size_));
    if (memory->base_ != nullptr) memory->buffer_ = api.dev_buffer_from_host_ptr(device, memory->base_, memory->size_, memory->size_);
    if (memory->buffer_ == nullptr) {
        error = std::to_string(n_slots) + " slots of " + tensors[0]->planned->name + " and its layer need " + std::to_string(memory->size_) +
                " bytes, the system has no such memory. Try fewer slots";
        return nullptr;
    }
    api.buffer_set_usage(memory->buffer_, abi::kUsageWeights);
    for (int slot = 0; slot < n_slots; slot++) memory->poison(slot);
    return memory;
}

SlotMemory::~SlotMemory() {
    api_.buffer_free(buffer_);
    if (base_ != nullptr) os::release_memory(base_, size_);
}

std::size_t SlotMemory::fill(int slot, int expert) {
    std::size_t n_bytes = 0;
    for (std::size_t i = 0; i < tensors_.size(); i++) {
        std::memcpy(slab(i, slot), tensors_[i]->slab(expert), tensors_[i]->slab_bytes);
        n_bytes += tensors_[i]->slab_bytes;
    }
    return n_bytes;
}

void SlotMemory::poison(int slot) {
    if (!poison_) return;
    for (std::size_t i = 0; i < tensors_.size(); i++) std::memset(slab(i, slot), kPoison, tensors_[i]->slab_bytes);
}

abi::Tensor SlotMemory::slot_tensor(std::size_t index) const {
    abi::Tensor tensor = tensors_[index]->shape;
    tensor.ne[2] = n_slots_;
    tensor.nb[3] = tensor.nb[2] * static_cast<std::size_t>(n_slots_);
    tensor.buffer = buffer_;
    tensor.data = base_ + offsets_[index];
    tensor.extra = nullptr;
    return tensor;
}

std::uint8_t *SlotMemory::slab(std::size_t tensor, int slot) const {
    return base_ + offsets_[tensor] + static_cast<std::size_t>(slot) * tensors_[tensor]->slab_bytes;
}

}  // namespace slotpool
