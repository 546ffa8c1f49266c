// Decayed frequency: an expert's score is the sum of decay^(events since) over the events that asked for it, kept for
// experts without a slot too. The victim is the resident expert with the smallest score, the lower slot on a tie.
//
// Scores are stored relative to a growing unit (score x decay^-t), so that an event changes only the experts it asked
// for; a heap over the slots gives the smallest in O(log slots) without looking at the others.
#pragma once

#include "policy/kept.h"
#include "policy/policy.h"
#include "policy/slot_heap.h"

namespace slotpool {

class DecayedCounts {
   public:
    DecayedCounts(double decay, int n_expert, int n_slots);
    // A part of the score that so many of all events asking for the expert have always led to: enough to be ahead, and soon outweighed.
    void seed(int expert, double share) { score_[static_cast<std::size_t>(expert)] += share * seed_ * unit_; }
    void keep(int expert) { kept_.add(expert); }
    void begin_event();
    void asked(int expert, int slot);
    void admitted(int expert, int slot) {
        if (!kept_.has(expert)) slots_.add(slot, score(expert));
    }
    void evicted(int expert, int slot) {
        if (!kept_.has(expert)) slots_.remove(slot);
    }

    double unit() const { return unit_; }  // what one event adds
    double score(int expert) const { return score_[static_cast<std::size_t>(expert)]; }
    const SlotHeap &slots() const { return slots_; }

   private:
    void rescale();

    double growth_;  // 1 / decay
    double seed_;    // events that an expert begins with which every event is expected to ask for
    double unit_ = 1.0;
    std::vector<double> score_;  // by expert
    SlotHeap slots_;             // by the scores of their experts, without those that are kept
    KeptExperts kept_;
};

class Decay final : public Policy {
   public:
    Decay(double decay, int n_expert, int n_slots) : counts_(decay, n_expert, n_slots) {}
    void seed(int expert, double share) override { counts_.seed(expert, share); }
    void keep(int expert) override { counts_.keep(expert); }
    void begin_event() override { counts_.begin_event(); }
    void asked(int expert, int slot) override { counts_.asked(expert, slot); }
    void hit(int, int) override {}
    void admitted(int expert, int slot) override { counts_.admitted(expert, slot); }
    void evicted(int expert, int slot) override { counts_.evicted(expert, slot); }
    int victim(const PoolView &view) const override;
    double worth(int expert) const override { return counts_.score(expert); }
    bool refuses(int candidate, int victim) const override { return worth(candidate) <= worth(victim); }

   private:
    DecayedCounts counts_;
};

}  // namespace slotpool
