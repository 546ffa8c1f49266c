#include "transfer/staging.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "transfer/device_slots.h"

namespace slotpool {
namespace {

constexpr std::uint8_t kPoison = 0xFF;

int n_expert(const StoredTensor &stored) { return static_cast<int>(stored.shape.ne[2]); }

// Of each place the most that a layer needs there.
std::vector<std::size_t> place_bytes(const abi::Api &api, abi::Device *device, const std::vector<StoredTensors> &layers) {
    std::vector<std::size_t> most;
    for (const StoredTensors &layer : layers) {
        most.resize(std::max(most.size(), layer.size()), 0);
        for (std::size_t i = 0; i < layer.size(); i++) most[i] = std::max(most[i], DeviceSlots::bytes(api, device, *layer[i], n_expert(*layer[i])));
    }
    return most;
}

bool has_same_slabs(const abi::Tensor &a, const abi::Tensor &b) {
    return a.type == b.type && std::memcmp(a.ne, b.ne, sizeof(a.ne)) == 0 && std::memcmp(a.nb, b.nb, sizeof(a.nb)) == 0;
}

}  // namespace

std::uint64_t Staging::bytes(const abi::Api &api, abi::Device *device, const std::vector<StoredTensors> &layers) {
    const std::vector<std::size_t> places = place_bytes(api, device, layers);
    return std::accumulate(places.begin(), places.end(), std::uint64_t{0});
}

std::unique_ptr<Staging> Staging::allocate(const abi::Api &api, abi::Device *device, const std::vector<StoredTensors> &layers, bool poison,
                                           std::string &error) {
    std::unique_ptr<Staging> staging(new Staging(api, poison));
    abi::BufferType *type = api.dev_buffer_type(device);
    for (const std::size_t n_bytes : place_bytes(api, device, layers)) {
        abi::Buffer *buffer = n_bytes > api.buft_max_size(type) ? nullptr : api.buft_alloc(type, n_bytes);
        if (buffer == nullptr) {
            error = "the experts of a layer need " + std::to_string(n_bytes) + " bytes more, " + api.dev_name(device) + " has no such memory";
            return nullptr;
        }
        api.buffer_set_usage(buffer, abi::kUsageWeights);
        staging->places_.push_back({buffer, n_bytes, {}});
    }
    return staging;
}

Staging::~Staging() {
    for (Place &place : places_) api_.buffer_free(place.buffer);
}

std::uint64_t Staging::bytes() const {
    return std::accumulate(places_.begin(), places_.end(), std::uint64_t{0}, [](std::uint64_t sum, const Place &place) { return sum + place.bytes; });
}

bool Staging::has_room_for(const StoredTensors &layer) const {
    if (layer.size() > places_.size()) return false;
    for (std::size_t i = 0; i < layer.size(); i++) {
        if (static_cast<std::size_t>(n_expert(*layer[i])) * layer[i]->slab_bytes > places_[i].bytes) return false;
    }
    return true;
}

// Kernels may read a little past a row's end and times zero: what lies there must be finite. Experts of other layers are, as long as they have
// the same type and places.
bool Staging::take(std::size_t index, const StoredTensor &stored) {
    Place &place = places_[index];
    if (!has_same_slabs(place.tensor, stored.shape)) {
        api_.buffer_clear(place.buffer, 0);
        place.tensor = stored.shape;
        place.tensor.buffer = nullptr;
        place.tensor.data = nullptr;
        place.tensor.extra = nullptr;
        place.tensor.view_src = nullptr;
        const bool is_placed = api_.tensor_alloc(place.buffer, &place.tensor, api_.buffer_base(place.buffer)) == abi::Status::success;
        if (!is_placed) place.tensor = {};
        if (!is_placed) return false;
    }
    if (poison_) api_.tensor_memset(&place.tensor, kPoison, 0, place.tensor.nb[3]);
    return true;
}

}  // namespace slotpool
