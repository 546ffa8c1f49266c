#include "transfer/slab_waves.h"

#include <algorithm>

#include "os/memory.h"

namespace slotpool {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t to_pages(std::size_t n) { return (n + kPage - 1) / kPage * kPage; }

// a slab with all that its read brings
std::size_t room_of(const SlabSource &source, const StoredTensor &tensor) { return to_pages(source.room(tensor, 1)); }

}  // namespace

std::size_t SlabWaves::bytes(const SlabSource &source, const StoredTensors &tensors, std::size_t most) {
    if (tensors.empty()) return 0;
    std::size_t one = 0;
    for (const auto &tensor : tensors) one += room_of(source, *tensor);
    const auto all = static_cast<std::size_t>(tensors[0]->shape.ne[2]);
    return 2 * one * std::clamp<std::size_t>(most / (2 * one), 1, all);
}

SlabWaves::SlabWaves(SlabSource &source, std::size_t n_bytes)
    : source_(source), half_bytes_(n_bytes / 2 / kPage * kPage), base_(static_cast<std::uint8_t *>(os::reserve_memory(2 * half_bytes_))) {
    if (base_ != nullptr) os::keep_from_children(base_, 2 * half_bytes_);
}

SlabWaves::~SlabWaves() {
    drop();
    if (base_ != nullptr) os::release_memory(base_, 2 * half_bytes_);
}

std::size_t SlabWaves::most(const StoredTensors &tensors, const std::vector<std::size_t> &indices) const {
    std::size_t one = 0;
    for (const std::size_t index : indices) one += room_of(source_, *tensors[index]);
    return std::max<std::size_t>(1, half_bytes_ / std::max<std::size_t>(one, 1));
}

void SlabWaves::begin(const StoredTensors &tensors, const std::vector<std::int32_t> &experts, const std::vector<std::size_t> &indices) {
    const std::size_t half = waves_.empty() ? 0 : 1 - waves_.back().half;
    waves_.push_back({experts, indices, {}, half});
    std::uint8_t *to = base_ + half * half_bytes_;
    for (const std::size_t index : indices) {
        for (const std::int32_t expert : experts) {
            waves_.back().fetches.emplace_back();
            source_.begin(*tensors[index], expert, 1, to, waves_.back().fetches.back());
            to += room_of(source_, *tensors[index]);
        }
    }
}

bool SlabWaves::wait(std::string &error) {
    std::deque<Fetch> &fetches = waves_.front().fetches;
    return std::all_of(fetches.begin(), fetches.end(), [&](Fetch &fetch) { return source_.finish(fetch, error); });
}

void SlabWaves::end() {
    for (Fetch &fetch : waves_.front().fetches) source_.drop(fetch);
    waves_.pop_front();
}

void SlabWaves::drop() {
    while (!waves_.empty()) end();
}

const std::uint8_t *SlabWaves::slab(std::size_t index, std::int32_t expert) const {
    if (waves_.empty()) return nullptr;
    const Wave &wave = waves_.front();
    const auto tensor = std::find(wave.indices.begin(), wave.indices.end(), index);
    const auto found = std::find(wave.experts.begin(), wave.experts.end(), expert);
    if (tensor == wave.indices.end() || found == wave.experts.end()) return nullptr;
    const auto place = static_cast<std::size_t>(tensor - wave.indices.begin()) * wave.experts.size();
    return wave.fetches[place + static_cast<std::size_t>(found - wave.experts.begin())].slabs;
}

}  // namespace slotpool
