#include "transfer/device_slots.h"

#include <algorithm>

#include "os/memory.h"

namespace slotpool {
namespace {

constexpr std::uint8_t kPoison = 0xFF;
constexpr std::size_t kTailBytes = 512;  // kernels may read a little past the last expert: that must be finite

abi::Tensor slot_tensor(const StoredTensor &stored, int n_slots) {
    abi::Tensor tensor = stored.shape;
    tensor.ne[2] = n_slots;
    tensor.nb[3] = tensor.nb[2] * static_cast<std::size_t>(n_slots);
    tensor.buffer = nullptr;
    tensor.data = nullptr;
    tensor.extra = nullptr;
    tensor.view_src = nullptr;
    return tensor;
}

}  // namespace

std::size_t DeviceSlots::bytes(const abi::Api &api, abi::Device *device, const StoredTensor &tensor, int n_slots) {
    const abi::Tensor slots = slot_tensor(tensor, n_slots);
    return api.buft_alloc_size(api.dev_buffer_type(device), &slots) + kTailBytes;
}

int DeviceSlots::most_slots(const abi::Api &api, abi::Device *device, const StoredTensor &tensor, int n_slots) {
    const std::size_t most = api.buft_max_size(api.dev_buffer_type(device));
    while (n_slots > 0 && bytes(api, device, tensor, n_slots) > most) n_slots--;
    return n_slots;
}

std::unique_ptr<DeviceSlots> DeviceSlots::allocate(const abi::Api &api, abi::Device *device, const StoredTensors &tensors, int n_slots, bool poison,
                                                   std::string &error) {
    std::unique_ptr<DeviceSlots> slots(new DeviceSlots(api, poison));
    std::size_t n_bytes = 0;
    for (const auto &tensor : tensors) {
        n_bytes += bytes(api, device, *tensor, n_slots);
        if (slots->add(device, *tensor, n_slots)) continue;
        error = std::to_string(n_slots) + " slots of " + tensor->planned->name + " and its layer need more than " + std::to_string(n_bytes) +
                " bytes, " + api.dev_name(device) + " has no such memory. Try fewer slots";
        return nullptr;
    }
    for (int slot = 0; slot < n_slots; slot++) slots->poison(slot);
    return slots;
}

bool DeviceSlots::add(abi::Device *device, const StoredTensor &stored, int n_slots) {
    places_.push_back({slot_tensor(stored, n_slots), nullptr, bytes(api_, device, stored, n_slots)});
    Place &place = places_.back();
    const bool is_cpu = api_.dev_type(device) == abi::DeviceType::cpu;
    if (is_cpu) place.base = os::reserve_memory(place.size);
    if (is_cpu && place.base == nullptr) return false;
    abi::Buffer *buffer = is_cpu ? api_.dev_buffer_from_host_ptr(device, place.base, place.size, place.size)
                                 : api_.buft_alloc(api_.dev_buffer_type(device), place.size);
    if (buffer == nullptr) return false;
    place.tensor.buffer = buffer;  // from here on the destructor frees it
    api_.buffer_set_usage(buffer, abi::kUsageWeights);
    if (!is_cpu) api_.buffer_clear(buffer, 0);
    place.tensor.buffer = nullptr;
    const bool is_placed = api_.tensor_alloc(buffer, &place.tensor, api_.buffer_base(buffer)) == abi::Status::success;
    place.tensor.buffer = buffer;
    return is_placed;
}

DeviceSlots::~DeviceSlots() {
    for (Place &place : places_) {
        if (place.tensor.buffer != nullptr) api_.buffer_free(place.tensor.buffer);
        if (place.base != nullptr) os::release_memory(place.base, place.size);
    }
}

void DeviceSlots::poison(int slot) {
    if (!poison_) return;
    for (std::size_t index = 0; index < places_.size(); index++) {
        api_.tensor_memset(tensor(index), kPoison, offset(index, slot), tensor(index)->nb[2]);
    }
}

void DeviceSlots::flip_bit(std::size_t index, int slot) {
    std::uint8_t byte = 0;
    api_.tensor_get(tensor(index), &byte, offset(index, slot), 1);
    byte ^= 0x40;
    api_.tensor_set(tensor(index), &byte, offset(index, slot), 1);
}

}  // namespace slotpool
