// The bytes of a pool's slots on any device: for each tensor of a group one tensor [ne0, ne1, n_slots] in a buffer of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

class DeviceSlots {
   public:
    // nullptr when the device has no room; `error` then says what was asked for.
    static std::unique_ptr<DeviceSlots> allocate(const abi::Api &api, abi::Device *device, const StoredTensors &tensors, int n_slots, bool poison,
                                                 std::string &error);
    ~DeviceSlots();
    DeviceSlots(const DeviceSlots &) = delete;
    DeviceSlots &operator=(const DeviceSlots &) = delete;

    // Bytes that so many slots of a tensor take on the device.
    static std::size_t bytes(const abi::Api &api, abi::Device *device, const StoredTensor &tensor, int n_slots);
    // The most slots of a tensor that one buffer of the device can hold.
    static int most_slots(const abi::Api &api, abi::Device *device, const StoredTensor &tensor, int n_slots);

    abi::Tensor *tensor(std::size_t index) { return &places_[index].tensor; }
    std::size_t offset(std::size_t index, int slot) const { return static_cast<std::size_t>(slot) * places_[index].tensor.nb[2]; }
    // With poison on: overwrites the slot so that a stale read becomes NaN. Nothing may use the slot meanwhile.
    void poison(int slot);
    void flip_bit(std::size_t index, int slot);

   private:
    struct Place {
        abi::Tensor tensor;
        void *base;        // memory of ours under a buffer of the CPU; nullptr for a device's own
        std::size_t size;  // of it
    };
    DeviceSlots(const abi::Api &api, bool poison) : api_(api), poison_(poison) {}
    bool add(abi::Device *device, const StoredTensor &stored, int n_slots);

    const abi::Api &api_;
    bool poison_;
    std::deque<Place> places_;  // by tensor; addresses stay
};

}  // namespace slotpool
