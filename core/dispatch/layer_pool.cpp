#include "dispatch/layer_pool.h"

#include <algorithm>
#include <numeric>

#include "stats/stopwatch.h"

namespace slotpool {
namespace {

// An expert that was hit so often stays: moving its slab (a millisecond a few megabytes) pays then, and is rare. Where every expert has a
// slot nobody ever leaves, and the first hit is enough.
constexpr std::uint32_t kHitsToSettle = 32;

std::uint32_t hits_to_settle(int n_slots, int n_expert) { return n_slots >= n_expert ? 1 : kHitsToSettle; }

}  // namespace

std::unique_ptr<LayerPool> LayerPool::make(const abi::Api &api, abi::Device *device, Session &session, int group, int n_slots, SlabSource &source,
                                           GroupCounts &counts, std::string &error) {
    const PlannedGroup &planned = session.plan.groups[static_cast<std::size_t>(group)];
    const StoredTensors tensors = session.tensors_of(group);
    auto memory = SlotMemory::allocate(api, device, tensors, source, n_slots, session.plan.poison, error);
    if (!memory) return nullptr;
    auto made = std::unique_ptr<LayerPool>(new LayerPool(tensors, planned, n_slots, session.plan, source, std::move(memory), counts));
    // a context has one source of slabs: it tells contexts apart
    if (session.recorder && session.plan.is_recorded(group))
        made->trace_ = session.recorder->add_ring(planned.layer, planned.pass == "chexps", planned.n_expert, &source);
    return made;
}

LayerPool::LayerPool(const StoredTensors &tensors, const PlannedGroup &group, int n_slots, const Plan &plan, SlabSource &source,
                     std::unique_ptr<SlotMemory> memory, GroupCounts &counts)
    : tensors_(tensors),
      source_(source),
      memory_(std::move(memory)),
      pool_(group.n_expert, n_slots, make_policy(plan.policy, plan.decay, group.n_expert, n_slots)),
      counts_(counts),
      event_served_(tensors.size(), true),
      n_hits_(static_cast<std::size_t>(n_slots), 0),
      n_to_settle_(hits_to_settle(n_slots, group.n_expert)),
      slot_of_expert_(static_cast<std::size_t>(group.n_expert), kNone),
      order_(tensors.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    for (std::size_t i = 0; i < tensors_.size(); i++) {
        serials_.push_back(tensors_[i]->serial);
        slot_tensors_.push_back(memory_->slot_tensor(i));
        slab_bytes_ += tensors_[i]->slab_bytes;
    }
}

LayerPool::~LayerPool() {
    for (const auto &fetch : warm_fetches_) source_.drop(*fetch);
    finish_event();
}

void LayerPool::warm(const WarmSet &set) {
    if (set.hottest.empty() || event_number_ > 0) return;
    warm_ = pool_.warm(set.hottest, set.n_kept);
    while (warm_fetches_.size() < warm_.size() * tensors_.size()) warm_fetches_.push_back(std::make_unique<Fetch>());
    for (std::size_t i = 0; i < warm_.size(); i++) {
        memory_->poison(warm_[i].slot);
        for (std::size_t index = 0; index < tensors_.size(); index++) {
            source_.begin(*tensors_[index], warm_[i].expert, 1, memory_->room(index, warm_[i].slot), warm_fetch(index, i));
            memory_->set_slab(index, warm_[i].slot, warm_fetch(index, i).slabs);
        }
    }
    counts_.warmed.add(warm_.size());
    counts_.pinned.set(std::min(warm_.size(), static_cast<std::size_t>(set.n_kept)));
}

// A slab that does not come is a miss: whoever asks for it is told why.
void LayerPool::finish_warm() {
    for (std::size_t i = 0; i < warm_.size(); i++) {
        bool is_complete = true;
        std::string error;
        for (std::size_t index = 0; index < tensors_.size(); index++) is_complete = source_.finish(warm_fetch(index, i), error) && is_complete;
        is_complete ? pool_.publish(warm_[i].slot) : pool_.abandon(warm_[i].slot);
    }
    warm_.clear();
    warm_fetches_.clear();
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

bool LayerPool::serve(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch, Phase phase, bool is_passing, std::string &error) {
    const auto index = static_cast<std::size_t>(index_of(stored));
    if (begins_event(stored, routing, ubatch)) {
        finish_event();
        if (!warm_.empty()) {
            const Stopwatch wait;
            finish_warm();
            wait.add_to(counts_.phase[static_cast<int>(phase)].wait_ns);
        }
        if (!begin_event(routing, is_passing)) {
            error = "Expected expert ids from 0 to " + std::to_string(pool_.n_expert() - 1) + " in " + stored.planned->name +
                    ", found one outside. The router's output is damaged (NaN?): this request fails, the pool is unchanged";
            return false;
        }
        if (trace_) trace_->push(ubatch, phase == Phase::prompt, routing.n_used, routing.ids);
        phase_ = phase;
        count();
        event_ubatch_ = ubatch;
    }
    event_served_[index] = true;
    const auto place = std::find(order_.begin(), order_.end(), index);
    std::rotate(order_.begin() + static_cast<std::ptrdiff_t>(n_asked_), place, place + 1);
    n_asked_++;
    return true;
}

bool LayerPool::begin_event(const Routing &routing, bool is_passing) {
    const auto *ids = routing.ids.data();
    const std::size_t n_ids = routing.ids.size();
    make_room(n_ids);
    event_ubatch_ = 0;
    event_ = routing;
    const Stopwatch update;
    if (!(is_passing ? pool_.pass(ids, n_ids, lookups_) : pool_.event(ids, n_ids, lookups_))) return false;
    update_ns_ = update.ns();
    event_number_++;
    event_served_.assign(event_served_.size(), false);
    n_asked_ = 0;
    const Stopwatch copy;
    fetch_misses();
    copy_ns_ = tensors_[0]->is_on_disk() ? 0 : copy.ns();  // a disk is only asked here: what it makes wait is counted there
    map_rows();
    return true;
}

// Everything that an event needs room for, before the pool is asked: a pool that gave slots away must see them filled.
void LayerPool::make_room(std::size_t n_ids) {
    const auto n_expert = static_cast<std::size_t>(pool_.n_expert());
    const std::size_t n_distinct = std::min(n_ids, n_expert);
    lookups_.reserve(n_distinct);
    fetch_of_.reserve(n_distinct);
    passing_.reserve(n_distinct);
    slot_ids_.reserve(n_ids);
    const std::size_t n_fetches = std::min(n_distinct, static_cast<std::size_t>(pool_.n_slots())) * tensors_.size();
    while (fetches_.size() < n_fetches) fetches_.push_back(std::make_unique<Fetch>());
}

// every slab that is missing is asked for at once, in the order in which the layer will want them
void LayerPool::fetch_misses() {
    fetch_of_.assign(lookups_.size(), kNone);
    passing_.clear();
    n_fetched_ = 0;
    for (std::size_t i = 0; i < lookups_.size(); i++) {
        if (lookups_[i].slot == kNone) passing_.push_back(lookups_[i].expert);
        if (lookups_[i].slot == kNone) continue;
        std::uint32_t &n_hits = n_hits_[static_cast<std::size_t>(lookups_[i].slot)];
        n_hits = lookups_[i].is_hit ? std::min(n_hits + 1, n_to_settle_) : 0;
        if (lookups_[i].is_hit) continue;
        memory_->poison(lookups_[i].slot);
        fetch_of_[i] = static_cast<std::int32_t>(n_fetched_++);
    }
    std::sort(passing_.begin(), passing_.end());
    has_all_slots_ = passing_.empty();
    for (const std::size_t index : order_) {
        for (std::size_t i = 0; i < lookups_.size(); i++) {
            if (fetch_of_[i] == kNone) continue;
            Fetch &one = fetch(index, i);
            source_.begin(*tensors_[index], lookups_[i].expert, 1, memory_->room(index, lookups_[i].slot), one);
            memory_->set_slab(index, lookups_[i].slot, one.slabs);
        }
    }
}

bool LayerPool::is_arriving(std::size_t index, std::size_t lookup) const {
    return fetch_of_[lookup] != kNone && !source_.is_done(fetch(index, lookup));
}

bool LayerPool::wait(std::size_t index, std::size_t lookup, std::string &error) {
    return fetch_of_[lookup] == kNone || source_.finish(fetch(index, lookup), error);
}

bool LayerPool::is_in_slots(std::size_t index) {
    if (!has_all_slots_) return false;
    std::string error;
    for (std::size_t i = 0; i < lookups_.size(); i++) {
        if (is_arriving(index, i) || !wait(index, i, error)) return false;
    }
    return true;
}

bool LayerPool::is_at_stride(std::size_t index) {
    bool may_move = true;
    bool is_at_stride = true;
    for (const Lookup &lookup : lookups_) {
        if (memory_->is_at_stride(index, lookup.slot)) continue;
        const bool moves = may_move && n_hits_[static_cast<std::size_t>(lookup.slot)] >= n_to_settle_;
        if (moves) memory_->move_to_stride(index, lookup.slot);
        may_move = may_move && !moves;
        is_at_stride = is_at_stride && moves;
    }
    return is_at_stride;
}

std::vector<std::size_t> LayerPool::order_from(std::size_t index) const { return {std::find(order_.begin(), order_.end(), index), order_.end()}; }

void LayerPool::finish_event() {
    for (std::size_t i = 0; i < lookups_.size() && n_fetched_ > 0; i++) {
        if (fetch_of_[i] == kNone) continue;
        bool is_complete = true;
        std::string error;  // of a slab that nobody waits for any more
        for (std::size_t index = 0; index < tensors_.size(); index++) is_complete = wait(index, i, error) && is_complete;
        is_complete ? pool_.publish(lookups_[i].slot) : pool_.abandon(lookups_[i].slot);
    }
    n_fetched_ = 0;
}

void LayerPool::forget_event() {
    finish_event();
    lookups_.clear();
    event_ubatch_ = 0;
}

void LayerPool::map_rows() {
    for (const Lookup &lookup : lookups_) slot_of_expert_[static_cast<std::size_t>(lookup.expert)] = lookup.slot;
    slot_ids_.resize(event_.ids.size());
    for (std::size_t row = 0; row < event_.ids.size(); row++) slot_ids_[row] = slot_of_expert_[static_cast<std::size_t>(event_.ids[row])];
}

void LayerPool::count() {
    std::uint64_t hits = 0;
    std::uint64_t copied = 0;
    std::uint64_t rows_hit = 0;
    std::uint64_t admitted = 0;
    std::uint64_t evicted = 0;
    for (const Lookup &lookup : lookups_) {
        hits += lookup.is_hit ? 1 : 0;
        copied += !lookup.is_hit && (lookup.slot != kNone || tensors_[0]->is_on_disk()) ? 1 : 0;
        rows_hit += lookup.is_hit ? static_cast<std::uint64_t>(lookup.n_rows) : 0;
        admitted += !lookup.is_hit && lookup.slot != kNone ? 1 : 0;
        evicted += lookup.evicted != kNone ? 1 : 0;
    }
    for (const Lookup &lookup : lookups_) {
        if (heat_) (*heat_)[static_cast<std::size_t>(lookup.expert)].add(static_cast<std::uint64_t>(lookup.n_rows));
    }
    const std::uint64_t n_rows = event_.ids.size();
    // in host memory an event that does not fit is computed where the weights lie, as a whole
    const bool is_elsewhere = !has_all_slots_ && !tensors_[0]->is_on_disk();
    PhaseCounts &counts = counts_.phase[static_cast<int>(phase_)];
    counts.events.add(1);
    counts.lookups.add(lookups_.size());
    counts.hits.add(hits);
    counts.misses.add(lookups_.size() - hits);
    counts.rows_hit.add(is_elsewhere ? 0 : rows_hit);
    counts.rows_copy.add(is_elsewhere ? 0 : n_rows - rows_hit);
    counts.rows_cpu.add(is_elsewhere ? n_rows : 0);
    counts.bytes_copied.add(copied * slab_bytes_);
    counts.bytes_saved.add(is_elsewhere ? 0 : hits * slab_bytes_);
    counts.ranges_copied.add(copied * tensors_.size());
    counts.empty_copies.add(hits == lookups_.size() ? 1 : 0);
    counts.update_ns.add(update_ns_);
    counts.copy_ns.add(copy_ns_);
    counts_.admitted.add(admitted);
    counts_.evicted.add(evicted);
}

}  // namespace slotpool
