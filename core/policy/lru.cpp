#include "policy/lru.h"

#include <algorithm>

namespace slotpool {

Lru::Lru(int n_slots) : anchor_(n_slots), links_(static_cast<std::size_t>(n_slots) + 1, Link{n_slots, n_slots}) {
    used_.reserve(static_cast<std::size_t>(n_slots));
}

// an event uses its slots together: the order of ids inside it, which differs between devices, says nothing about recency
void Lru::begin_event() {
    std::sort(used_.begin(), used_.end());
    for (const int slot : used_) append(slot);
    used_.clear();
}

void Lru::hit(int expert, int slot) {
    if (kept_.has(expert)) return;
    unlink(slot);
    used_.push_back(slot);
}

void Lru::admitted(int expert, int slot) {
    if (!kept_.has(expert)) used_.push_back(slot);
}

// who was used by the current event can leave it too, by hand
void Lru::evicted(int expert, int slot) {
    if (kept_.has(expert)) return;
    const auto used = std::find(used_.begin(), used_.end(), slot);
    used != used_.end() ? void(used_.erase(used)) : unlink(slot);
}

int Lru::victim(const PoolView &view) const {
    int slot = links_[static_cast<std::size_t>(anchor_)].after;
    while (slot != anchor_ && !view.is_victim(slot)) slot = links_[static_cast<std::size_t>(slot)].after;
    return slot == anchor_ ? kNone : slot;
}

void Lru::unlink(int slot) {
    const Link gone = link(slot);
    link(gone.before).after = gone.after;
    link(gone.after).before = gone.before;
}

void Lru::append(int slot) {
    const int newest = link(anchor_).before;
    link(slot) = {newest, anchor_};
    link(newest).after = slot;
    link(anchor_).before = slot;
}

}  // namespace slotpool
