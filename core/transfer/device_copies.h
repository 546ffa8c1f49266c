// Whole copies on a device of small tensors that lie in the store: the biases of expert tensors.
#pragma once

#include <cstdint>
#include <map>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

class DeviceCopies {
   public:
    DeviceCopies(const abi::Api &api, abi::Device *device) : api_(api), device_(device) {}
    ~DeviceCopies();
    DeviceCopies(const DeviceCopies &) = delete;
    DeviceCopies &operator=(const DeviceCopies &) = delete;

    // The copy, made at the first question. nullptr when the device has no room.
    abi::Tensor *of(const StoredBias &bias);

   private:
    const abi::Api &api_;
    abi::Device *device_;
    std::map<std::uint64_t, abi::Tensor> copies_;  // by serial: an address may be another model's tomorrow
};

}  // namespace slotpool
