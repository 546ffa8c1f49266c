#include "policy/lru.h"

#include <algorithm>

namespace slotpool {

Lru::Lru(int n_slots)
    : next_(static_cast<std::size_t>(n_slots), kNone),
      prev_(static_cast<std::size_t>(n_slots), kNone),
      used_in_(static_cast<std::size_t>(n_slots), 0) {}

// an event uses its slots together: the order of ids inside it, which differs between devices, says nothing about recency
void Lru::begin_event() {
    last_used_.clear();
    while (tail_ != kNone && used_in_[static_cast<std::size_t>(tail_)] == event_) {
        last_used_.push_back(tail_);
        unlink(tail_);
    }
    std::sort(last_used_.begin(), last_used_.end());
    for (int slot : last_used_) link(slot);
    event_++;
}

void Lru::hit(int, int slot) {
    unlink(slot);
    append(slot);
}

void Lru::admitted(int, int slot) { append(slot); }

void Lru::evicted(int, int slot) { unlink(slot); }

// an event's own experts sit at the tail when misses are admitted, so the walk ends at its first step but for pins
int Lru::victim(const PoolView &view) const {
    int slot = head_;
    while (slot != kNone && !view.is_victim(slot)) slot = next_[static_cast<std::size_t>(slot)];
    return slot;
}

void Lru::unlink(int slot) {
    const int before = prev_[static_cast<std::size_t>(slot)];
    const int after = next_[static_cast<std::size_t>(slot)];
    (before == kNone ? head_ : next_[static_cast<std::size_t>(before)]) = after;
    (after == kNone ? tail_ : prev_[static_cast<std::size_t>(after)]) = before;
}

void Lru::append(int slot) {
    used_in_[static_cast<std::size_t>(slot)] = event_;
    link(slot);
}

void Lru::link(int slot) {
    prev_[static_cast<std::size_t>(slot)] = tail_;
    next_[static_cast<std::size_t>(slot)] = kNone;
    (tail_ == kNone ? head_ : next_[static_cast<std::size_t>(tail_)]) = slot;
    tail_ = slot;
}

}  // namespace slotpool
