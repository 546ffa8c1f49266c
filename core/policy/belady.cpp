#include "policy/belady.h"

#include <algorithm>

namespace slotpool {

Belady::Belady(const EventList &events, int n_expert, int n_slots, bool may_refuse)
    : events_(events), n_slots_(static_cast<std::size_t>(n_slots)), may_refuse_(may_refuse), experts_(static_cast<std::size_t>(n_expert)) {
    find_next_uses();
}

// backwards: the rows of an event see the use after it, also where an expert is asked for twice
void Belady::find_next_uses() {
    next_event_.resize(events_.n_events == 0 ? 0 : static_cast<std::size_t>(events_.first[events_.n_events]));
    for (std::size_t event = events_.n_events; event-- > 0;) {
        const auto begin = static_cast<std::size_t>(events_.first[event]);
        const auto end = static_cast<std::size_t>(events_.first[event + 1]);
        for (std::size_t row = begin; row < end; row++) next_event_[row] = expert(events_.ids[row]).next_event;
        for (std::size_t row = begin; row < end; row++) expert(events_.ids[row]).next_event = static_cast<std::int64_t>(event);
    }
}

Belady::Found Belady::step() {
    const Found found = collect();
    const bool is_passing = events_.is_passing[event_] != 0;
    if (is_passing && !may_refuse_) {
        std::stable_sort(misses_.begin(), misses_.end(), [this](int a, int b) { return expert(a).n_rows > expert(b).n_rows; });
    }
    for (const int miss : misses_) admit(miss, may_refuse_ || !is_passing);
    event_++;
    return found;
}

Belady::Found Belady::collect() {
    Found found{0, 0};
    misses_.clear();
    for (std::int64_t row = events_.first[event_]; row < events_.first[event_ + 1]; row++) {
        Expert &asked = expert(events_.ids[row]);
        if (asked.seen_in == event_) {
            asked.n_rows++;
            continue;
        }
        asked.seen_in = event_;
        found.lookups++;
        asked.n_rows = 1;
        asked.next_use = use(next_event_[static_cast<std::size_t>(row)], events_.ids[row]);
        if (asked.slot == kNone) {
            misses_.push_back(events_.ids[row]);
            continue;
        }
        held_[static_cast<std::size_t>(asked.slot)] = asked.next_use;
        found.hits++;
    }
    return found;
}

void Belady::admit(int miss, bool may_evict) {
    Expert &admitted = expert(miss);
    if (held_.size() < n_slots_) {
        admitted.slot = static_cast<std::int32_t>(held_.size());
        held_.push_back(admitted.next_use);
        holder_.push_back(miss);
        return;
    }
    const int slot = may_evict ? farthest_slot() : kNone;
    if (slot == kNone || (may_refuse_ && held_[static_cast<std::size_t>(slot)] <= admitted.next_use)) return;
    expert(holder_[static_cast<std::size_t>(slot)]).slot = kNone;
    admitted.slot = slot;
    held_[static_cast<std::size_t>(slot)] = admitted.next_use;
    holder_[static_cast<std::size_t>(slot)] = miss;
}

// who may not refuse evicts no expert of the event
int Belady::farthest_slot() const {
    int farthest = kNone;
    std::int64_t latest = -1;
    for (std::size_t slot = 0; slot < held_.size(); slot++) {
        if (held_[slot] <= latest) continue;
        if (!may_refuse_ && experts_[static_cast<std::size_t>(holder_[slot])].seen_in == event_) continue;
        latest = held_[slot];
        farthest = static_cast<int>(slot);
    }
    return farthest;
}

}  // namespace slotpool
