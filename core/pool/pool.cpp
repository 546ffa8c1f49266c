#include "pool/pool.h"

#include <algorithm>

namespace slotpool {

Pool::Pool(int n_expert, int n_slots, std::unique_ptr<Policy> policy)
    : n_expert_(n_expert), policy_(std::move(policy)), slots_(static_cast<std::size_t>(n_slots)), experts_(static_cast<std::size_t>(n_expert)) {
    for (int index = n_slots - 1; index >= 0; index--) free_.push_back(index);
}

int Pool::find(int expert) const {
    const int index = experts_[static_cast<std::size_t>(expert)].slot;
    return index != kNone && !slots_[static_cast<std::size_t>(index)].is_filling ? index : kNone;
}

bool Pool::event(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out) {
    for (std::size_t row = 0; row < n_ids; row++) {
        if (ids[row] < 0 || ids[row] >= n_expert_) return false;
    }
    event_++;
    policy_->begin_event();
    collect(ids, n_ids, out);
    for (const Lookup &lookup : out) policy_->asked(lookup.expert, expert(lookup.expert).slot);
    for (const Lookup &lookup : out) {
        if (!lookup.is_hit) continue;
        slot(lookup.slot).used_in = event_;
        policy_->hit(lookup.expert, lookup.slot);
    }
    for (Lookup &lookup : out) {
        if (!lookup.is_hit) admit(lookup);
    }
    return true;
}

void Pool::collect(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out) {
    out.clear();
    for (std::size_t row = 0; row < n_ids; row++) {
        Expert &asked = expert(ids[row]);
        if (asked.seen_in == event_) {
            out[static_cast<std::size_t>(asked.index)].n_rows++;
            continue;
        }
        asked.seen_in = event_;
        asked.index = static_cast<std::int32_t>(out.size());
        const int found = find(ids[row]);
        out.push_back({ids[row], found, kNone, 1, found != kNone});
    }
}

void Pool::admit(Lookup &lookup) {
    if (expert(lookup.expert).slot != kNone) return;  // on its way already: not a hit, not admitted twice
    const int index = take_slot(lookup);
    if (index == kNone) return;
    Slot &taken = slot(index);
    taken.expert = lookup.expert;
    taken.is_filling = true;
    taken.used_in = event_;
    expert(lookup.expert).slot = index;
    lookup.slot = index;
    policy_->admitted(lookup.expert, index);
}

int Pool::take_slot(Lookup &lookup) {
    if (free_.empty()) {
        const int victim = policy_->victim(*this);
        if (victim == kNone) return kNone;
        lookup.evicted = slot(victim).expert;
        release(victim);
    }
    const int index = free_.back();
    free_.pop_back();
    return index;
}

void Pool::release(int index) {
    Slot &freed = slot(index);
    policy_->evicted(freed.expert, index);
    expert(freed.expert).slot = kNone;
    freed = Slot{};
    const auto below = std::lower_bound(free_.begin(), free_.end(), index, std::greater<>());
    free_.insert(below, index);
}

void Pool::publish(int index) { slot(index).is_filling = false; }

void Pool::abandon(int index) { release(index); }

bool Pool::evict(int gone) {
    const int index = find(gone);
    if (index == kNone || slot(index).is_pinned) return false;
    release(index);
    return true;
}

bool Pool::pin(int resident) {
    const int index = find(resident);
    if (index != kNone) slot(index).is_pinned = true;
    return index != kNone;
}

void Pool::unpin(int resident) {
    const int index = find(resident);
    if (index != kNone) slot(index).is_pinned = false;
}

void Pool::swap_slots(int a, int b) {
    std::swap(slot(a).expert, slot(b).expert);
    if (slot(a).expert != kNone) expert(slot(a).expert).slot = a;
    if (slot(b).expert != kNone) expert(slot(b).expert).slot = b;
}

bool Pool::is_victim(int index) const {
    const Slot &candidate = slots_[static_cast<std::size_t>(index)];
    return candidate.expert != kNone && !candidate.is_filling && !candidate.is_pinned && candidate.used_in != event_;
}

}  // namespace slotpool
