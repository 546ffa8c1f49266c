#include "dispatch/layer_pool.h"

#include <algorithm>
#include <cstring>

namespace slotpool {

void Routing::read(const abi::Tensor &view) {
    n_used = view.ne[0];
    n_tokens = view.ne[1];
    ids.resize(static_cast<std::size_t>(n_used * n_tokens));
    const auto *data = static_cast<const std::uint8_t *>(view.data);
    std::size_t row = 0;
    for (std::int64_t token = 0; token < n_tokens; token++) {
        for (std::int64_t k = 0; k < n_used; k++) {
            const std::size_t offset = static_cast<std::size_t>(token) * view.nb[1] + static_cast<std::size_t>(k) * view.nb[0];
            std::memcpy(&ids[row++], data + offset, sizeof(std::int32_t));
        }
    }
}

std::unique_ptr<LayerPool> LayerPool::make(const abi::Api &api, abi::Device *device, const Session &session, int group, GroupCounts &counts,
                                           std::string &error) {
    const PlannedGroup &planned = session.plan.groups[static_cast<std::size_t>(group)];
    const StoredTensors tensors = session.tensors_of(group);
    auto memory = SlotMemory::allocate(api, device, tensors, planned.slots, session.plan.poison, error);
    if (!memory) return nullptr;
    return std::unique_ptr<LayerPool>(new LayerPool(tensors, planned, session.plan, std::move(memory), counts));
}

LayerPool::LayerPool(const StoredTensors &tensors, const PlannedGroup &group, const Plan &plan, std::unique_ptr<SlotMemory> memory,
                     GroupCounts &counts)
    : tensors_(tensors),
      memory_(std::move(memory)),
      pool_(group.n_expert, group.slots, make_policy(plan.policy, plan.decay, group.n_expert, group.slots)),
      counts_(counts),
      event_served_(tensors.size(), true),
      slot_of_expert_(static_cast<std::size_t>(group.n_expert), kNone) {
    for (std::size_t i = 0; i < tensors_.size(); i++) {
        serials_.push_back(tensors_[i]->serial);
        slot_tensors_.push_back(memory_->slot_tensor(i));
        slab_bytes_ += tensors_[i]->slab_bytes;
    }
}

bool LayerPool::holds(const StoredTensor &stored) const {
    const auto is_there = [](const auto &tensor) { return tensor->base != nullptr; };
    return index_of(stored) >= 0 && std::all_of(tensors_.begin(), tensors_.end(), is_there);
}

int LayerPool::index_of(const StoredTensor &stored) const {
    for (std::size_t i = 0; i < serials_.size(); i++) {
        if (serials_[i] == stored.serial) return static_cast<int>(i);
    }
    return -1;
}

bool LayerPool::begins_event(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch) const {
    return ubatch != event_ubatch_ || event_served_[static_cast<std::size_t>(index_of(stored))] || !(routing == event_);
}

bool LayerPool::serve(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch, Phase phase, std::string &error) {
    const auto index = static_cast<std::size_t>(index_of(stored));
    if (begins_event(stored, routing, ubatch)) {
        if (!pool_.event(routing.ids.data(), routing.ids.size(), lookups_)) {
            error = "Expected expert ids from 0 to " + std::to_string(pool_.n_expert() - 1) + " in " + stored.planned->name +
                    ", found one outside. The router's output is damaged (NaN?): this request fails, the pool is unchanged";
            return false;
        }
        event_ = routing;
        event_served_.assign(event_served_.size(), false);
        fill_misses();
        map_rows();
        count(phase);
        event_ubatch_ = ubatch;
    }
    event_served_[index] = true;
    return true;
}

void LayerPool::fill_misses() {
    is_in_slots_ = true;
    for (const Lookup &lookup : lookups_) {
        if (lookup.slot == kNone) is_in_slots_ = false;
        if (lookup.is_hit || lookup.slot == kNone) continue;
        memory_->poison(lookup.slot);
        memory_->fill(lookup.slot, lookup.expert);
        pool_.publish(lookup.slot);
    }
}

void LayerPool::map_rows() {
    for (const Lookup &lookup : lookups_) slot_of_expert_[static_cast<std::size_t>(lookup.expert)] = lookup.slot;
    slot_ids_.resize(event_.ids.size());
    for (std::size_t row = 0; row < event_.ids.size(); row++) slot_ids_[row] = slot_of_expert_[static_cast<std::size_t>(event_.ids[row])];
}

void LayerPool::count(Phase phase) {
    std::uint64_t hits = 0;
    std::uint64_t copied = 0;
    std::uint64_t rows_hit = 0;
    for (const Lookup &lookup : lookups_) {
        hits += lookup.is_hit ? 1 : 0;
        copied += !lookup.is_hit && lookup.slot != kNone ? 1 : 0;
        rows_hit += lookup.is_hit ? static_cast<std::uint64_t>(lookup.n_rows) : 0;
    }
    const std::uint64_t n_rows = event_.ids.size();
    PhaseCounts &counts = counts_.phase[static_cast<int>(phase)];
    counts.events.add(1);
    counts.lookups.add(lookups_.size());
    counts.hits.add(hits);
    counts.misses.add(lookups_.size() - hits);
    counts.rows_hit.add(is_in_slots_ ? rows_hit : 0);
    counts.rows_copy.add(is_in_slots_ ? n_rows - rows_hit : 0);
    counts.rows_cpu.add(is_in_slots_ ? 0 : n_rows);
    counts.bytes_copied.add(copied * slab_bytes_);
    counts.bytes_saved.add(is_in_slots_ ? hits * slab_bytes_ : 0);
}

abi::Tensor *LayerPool::slot_tensor(const StoredTensor &stored) { return &slot_tensors_[static_cast<std::size_t>(index_of(stored))]; }

}  // namespace slotpool
