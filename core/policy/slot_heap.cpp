#include "policy/slot_heap.h"

namespace slotpool {

SlotHeap::SlotHeap(int n_slots) : place_(static_cast<std::size_t>(n_slots), 0) {
    heap_.reserve(static_cast<std::size_t>(n_slots));
    frontier_.reserve(static_cast<std::size_t>(n_slots));
}

void SlotHeap::add(int slot, double score) {
    heap_.push_back({score, slot});
    sift_up(heap_.size() - 1);
}

void SlotHeap::remove(int slot) {
    const std::size_t index = place_[static_cast<std::size_t>(slot)];
    const Entry last = heap_.back();
    heap_.pop_back();
    if (index == heap_.size()) return;
    place(index, last);
    sift_up(index);
    sift_down(place_[static_cast<std::size_t>(last.slot)]);
}

void SlotHeap::raise(int slot, double score) {
    const std::size_t index = place_[static_cast<std::size_t>(slot)];
    heap_[index].score = score;
    sift_down(index);
}

void SlotHeap::divide(double unit) {
    for (Entry &entry : heap_) entry.score /= unit;
    // rounding and underflow make ties, and on a tie the lower slot goes first: the heap has to be ordered again
    for (std::size_t index = heap_.size(); index-- > 0;) sift_down(index);
}

void SlotHeap::open(std::size_t index) const {
    if (index >= heap_.size()) return;
    frontier_.push_back(index);
    std::push_heap(frontier_.begin(), frontier_.end(), [this](std::size_t a, std::size_t b) { return comes_later(a, b); });
}

std::size_t SlotHeap::take_first() const {
    std::pop_heap(frontier_.begin(), frontier_.end(), [this](std::size_t a, std::size_t b) { return comes_later(a, b); });
    const std::size_t first = frontier_.back();
    frontier_.pop_back();
    return first;
}

void SlotHeap::place(std::size_t index, const Entry &entry) {
    heap_[index] = entry;
    place_[static_cast<std::size_t>(entry.slot)] = index;
}

void SlotHeap::sift_up(std::size_t index) {
    const Entry entry = heap_[index];
    while (index > 0) {
        const std::size_t parent = (index - 1) / kFanout;
        if (!(entry < heap_[parent])) break;
        place(index, heap_[parent]);
        index = parent;
    }
    place(index, entry);
}

void SlotHeap::sift_down(std::size_t index) {
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
