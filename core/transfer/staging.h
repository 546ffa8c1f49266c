// Room on a device for the experts of one layer that only pass through: for each place of a layer's tensors one tensor [ne0, ne1, n_expert],
// where an expert lies at its own index, as in the store. Layer after layer takes it; it holds nothing beyond an event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

class Staging {
   public:
    // Room for any of these layers. nullptr when the device has none; `error` then says what was asked for.
    static std::unique_ptr<Staging> allocate(const abi::Api &api, abi::Device *device, const std::vector<StoredTensors> &layers, bool poison,
                                             std::string &error);
    // Bytes that it takes on the device.
    static std::uint64_t bytes(const abi::Api &api, abi::Device *device, const std::vector<StoredTensors> &layers);
    ~Staging();
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;

    std::uint64_t bytes() const;
    bool has_room_for(const StoredTensors &layer) const;
    // Place `index` becomes room for `stored`. Nothing may use it meanwhile. False: the device refused the tensor.
    bool take(std::size_t index, const StoredTensor &stored);
    // What place `index` was taken for last. Valid until it is taken again.
    abi::Tensor *tensor(std::size_t index) { return &places_[index].tensor; }

   private:
    struct Place {
        abi::Buffer *buffer;
        std::size_t bytes;
        abi::Tensor tensor;
    };
    Staging(const abi::Api &api, bool poison) : api_(api), poison_(poison) {}

    const abi::Api &api_;
    bool poison_;
    std::deque<Place> places_;  // addresses stay
};

}  // namespace slotpool
