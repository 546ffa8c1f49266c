// The slots ordered by the score of who holds them, smallest first: a four-ary heap that can be changed in any place.
//
// On equal scores the lower slot comes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "policy/policy.h"

namespace slotpool {

class SlotHeap {
   public:
    explicit SlotHeap(int n_slots);

    void add(int slot, double score);
    void remove(int slot);
    void raise(int slot, double score);  // to a score that is not smaller
    void divide(double unit);            // all scores

    // Of the `n_looked_at` victims of the smallest scores the one whose worth is the smallest, the lower slot on a tie; kNone when there is
    // no victim. `worth` of a slot must not be below its score: slots that cannot hold a smaller worth any more are not looked at.
    template <typename Worth>
    int least(const PoolView &view, int n_looked_at, const Worth &worth) const {
        Entry best{0.0, kNone};
        frontier_.clear();
        open(0);
        while (!frontier_.empty() && n_looked_at > 0) {
            const std::size_t index = take_first();
            const Entry &entry = heap_[index];
            if (best.slot != kNone && best < entry) break;
            if (view.is_victim(entry.slot)) {
                n_looked_at--;
                const Entry found{worth(entry.slot), entry.slot};
                if (best.slot == kNone || found < best) best = found;
            }
            for (std::size_t child = index * kFanout + 1; child <= index * kFanout + kFanout; child++) open(child);
        }
        return best.slot;
    }

   private:
    struct Entry {
        double score;
        int slot;
        bool operator<(const Entry &other) const { return score < other.score || (score == other.score && slot < other.slot); }
    };
    static constexpr std::size_t kFanout = 4;

    bool comes_later(std::size_t a, std::size_t b) const { return heap_[b] < heap_[a]; }
    void open(std::size_t index) const;
    std::size_t take_first() const;
    void place(std::size_t index, const Entry &entry);
    void sift_up(std::size_t index);
    void sift_down(std::size_t index);

    std::vector<Entry> heap_;
    std::vector<std::size_t> place_;             // by slot: index in heap_
    mutable std::vector<std::size_t> frontier_;  // of least(): indices whose parents were looked at, a heap of its own
};

}  // namespace slotpool
