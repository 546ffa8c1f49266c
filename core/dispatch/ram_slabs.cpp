#include "dispatch/ram_slabs.h"

#include <algorithm>
#include <chrono>

namespace slotpool {

RamSlabs::RamSlabs(std::unique_ptr<LayerPool> pool, SlabWaves &waves, const Plan &plan)
    : HostSlabs(pool->tensors()), pool_(std::move(pool)), waves_(waves), plan_(plan) {}

void RamSlabs::warm(int n_skipped) {
    const PlannedGroup &group = plan_.groups[static_cast<std::size_t>(tensors_[0]->planned->group)];
    pool_->warm(warm_set(plan_, group, pool_->pool().n_slots(), n_skipped));
}

void RamSlabs::begin(const WantedSlabs &wanted) {
    Routing routing;
    routing.ids = wanted.ids;
    routing.n_used = static_cast<std::int64_t>(wanted.ids.size());
    routing.n_tokens = 1;
    n_events_++;
    std::string error;  // ids are in range
    for (const std::size_t index : wanted.order) pool_->serve(*tensors_[index], routing, n_events_, wanted.phase, wanted.is_passing, error);
}

void RamSlabs::forget() {
    waves_.drop();
    pool_->forget_event();
}

int RamSlabs::lookup_of(std::int32_t expert) const {
    const std::vector<Lookup> &lookups = pool_->lookups();
    const auto found = std::find_if(lookups.begin(), lookups.end(), [&](const Lookup &lookup) { return lookup.expert == expert; });
    return found == lookups.end() || found->slot == kNone ? -1 : static_cast<int>(found - lookups.begin());
}

bool RamSlabs::wait(std::size_t index, std::int32_t expert, std::string &error) {
    const auto lookup = static_cast<std::size_t>(lookup_of(expert));
    const auto wait = [&] { return pool_->wait(index, lookup, error); };
    return pool_->is_arriving(index, lookup) ? timed(wait) : wait();
}

bool RamSlabs::wait_for_wave(std::string &error) {
    return timed([&] { return waves_.wait(error); });
}

template <class Wait>
bool RamSlabs::timed(Wait wait) {
    const auto begin = std::chrono::steady_clock::now();
    const bool has_come = wait();
    pool_->count_wait(static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count()));
    return has_come;
}

// a slot that is being filled cannot be pinned: whatever comes has come before the first pin
void RamSlabs::pin(std::int32_t expert) {
    pool_->finish_event();
    pool_->pool().pin(expert);
}

const std::uint8_t *RamSlabs::slab(std::size_t index, std::int32_t expert) const {
    const int lookup = lookup_of(expert);
    return lookup >= 0 ? pool_->slab(index, static_cast<std::size_t>(lookup)) : waves_.slab(index, expert);
}

}  // namespace slotpool
