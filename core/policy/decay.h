// Decayed frequency: an expert's score is the sum of decay^(events since) over the events that asked for it, kept for
// experts without a slot too. The victim is the resident expert with the smallest score, the lower slot on a tie.
//
// Scores are stored relative to a growing unit (score x decay^-t), so that an event changes only the experts it asked
// for; a heap over the slots gives the smallest in O(log slots) without looking at the others.
#pragma once

#include "policy/policy.h"

namespace slotpool {

class Decay final : public Policy {
   public:
    Decay(double decay, int n_expert, int n_slots);
    void begin_event() override;
    void asked(int expert, int slot) override;
    void hit(int, int) override {}
    void admitted(int expert, int slot) override;
    void evicted(int expert, int slot) override;
    int victim(const PoolView &view) const override;
    double worth(int expert) const override { return score_[static_cast<std::size_t>(expert)]; }
    bool refuses(int candidate, int victim) const override { return worth(candidate) <= worth(victim); }

   private:
    struct Entry {
        double score;
        int slot;
        bool operator<(const Entry &other) const { return score < other.score || (score == other.score && slot < other.slot); }
    };
    static constexpr std::size_t kFanout = 4;

    void rescale();
    void place(std::size_t index, const Entry &entry);
    void sift_up(std::size_t index);
    void sift_down(std::size_t index);

    double growth_;  // 1 / decay
    double unit_ = 1.0;
    std::vector<double> score_;                  // by expert, in units of the current event
    std::vector<Entry> heap_;                    // smallest score first
    std::vector<std::size_t> place_;             // by slot: index in heap_
    mutable std::vector<std::size_t> frontier_;  // scratch of victim()
};

}  // namespace slotpool
