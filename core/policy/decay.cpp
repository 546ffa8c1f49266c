#include "policy/decay.h"

#include <algorithm>

namespace slotpool {
namespace {

constexpr double kUnitLimit = 1e100;

}  // namespace

Decay::Decay(double decay, int n_expert, int n_slots)
    : growth_(1.0 / decay), score_(static_cast<std::size_t>(n_expert), 0.0), place_(static_cast<std::size_t>(n_slots), 0) {
    heap_.reserve(static_cast<std::size_t>(n_slots));
}

void Decay::begin_event() {
    unit_ *= growth_;
    if (unit_ > kUnitLimit) rescale();
}

// a slot that is being filled is in the heap too: it must know what it was asked for meanwhile
void Decay::asked(int expert, int slot) {
    score_[static_cast<std::size_t>(expert)] += unit_;
    if (slot == kNone) return;
    const std::size_t index = place_[static_cast<std::size_t>(slot)];
    heap_[index].score = score_[static_cast<std::size_t>(expert)];
    sift_down(index);
}

void Decay::admitted(int expert, int slot) {
    heap_.push_back({score_[static_cast<std::size_t>(expert)], slot});
    sift_up(heap_.size() - 1);
}

void Decay::evicted(int, int slot) {
    const std::size_t index = place_[static_cast<std::size_t>(slot)];
    const Entry last = heap_.back();
    heap_.pop_back();
    if (index == heap_.size()) return;
    place(index, last);
    sift_up(index);
    sift_down(place_[static_cast<std::size_t>(last.slot)]);
}

// Best first from the root: below an entry that may be taken nothing is smaller, so only pinned entries are opened.
int Decay::victim(const PoolView &view) const {
    const Entry *best = nullptr;
    frontier_.clear();
    if (!heap_.empty()) frontier_.push_back(0);
    for (std::size_t next = 0; next < frontier_.size(); next++) {
        const std::size_t index = frontier_[next];
        const Entry &entry = heap_[index];
        if (best != nullptr && *best < entry) continue;
        if (view.is_victim(entry.slot)) {
            best = &entry;
            continue;
        }
        const std::size_t first = index * kFanout + 1;
        for (std::size_t child = first; child < std::min(first + kFanout, heap_.size()); child++) frontier_.push_back(child);
    }
    return best == nullptr ? kNone : best->slot;
}

void Decay::rescale() {
    for (double &score : score_) score /= unit_;
    for (Entry &entry : heap_) entry.score /= unit_;
    unit_ = 1.0;
    // rounding and underflow make ties, and on a tie the lower slot goes first: the heap has to be ordered again
    for (std::size_t index = heap_.size(); index-- > 0;) sift_down(index);
}

void Decay::place(std::size_t index, const Entry &entry) {
    heap_[index] = entry;
    place_[static_cast<std::size_t>(entry.slot)] = index;
}

void Decay::sift_up(std::size_t index) {
    const Entry entry = heap_[index];
    while (index > 0) {
        const std::size_t parent = (index - 1) / kFanout;
        if (!(entry < heap_[parent])) break;
        place(index, heap_[parent]);
        index = parent;
    }
    place(index, entry);
}

void Decay::sift_down(std::size_t index) {
    const Entry entry = heap_[index];
    for (;;) {
        const std::size_t first = index * kFanout + 1;
        if (first >= heap_.size()) break;
        std::size_t least = first;
        for (std::size_t child = first + 1; child < std::min(first + kFanout, heap_.size()); child++) {
            if (heap_[child] < heap_[least]) least = child;
        }
        if (!(heap_[least] < entry)) break;
        place(index, heap_[least]);
        index = least;
    }
    place(index, entry);
}

}  // namespace slotpool
