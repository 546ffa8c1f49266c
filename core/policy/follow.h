// Decayed frequency that also looks at what usually comes next. An expert is worth
//   its decayed count (policy/decay.h)
//   + what followed the experts of the last event (policy/successors.h)
//   + what followed events like the last one (policy/recall.h),
// and the victim is the one that is worth the least of the 8 resident experts with the smallest counts, the lower slot on a tie. Where misses can be
// served without a slot, one that is not worth more than the victim is refused.
//
// Only events of at most kLargest experts are learned from: larger ones are prompts or batches, where "next" means little.
#pragma once

#include "policy/decay.h"
#include "policy/recall.h"
#include "policy/successors.h"

namespace slotpool {

class Follow final : public Policy {
   public:
    Follow(double decay, int n_expert, int n_slots);
    void seed(int expert, double share) override { counts_.seed(expert, share); }
    void keep(int expert) override { counts_.keep(expert); }
    void begin_event() override;
    void asked(int expert, int slot) override;
    void asked_all() override;
    void hit(int, int) override {}
    void admitted(int expert, int slot) override { counts_.admitted(expert, slot); }
    void evicted(int expert, int slot) override { counts_.evicted(expert, slot); }
    int victim(const PoolView &view) const override;
    double worth(int expert) const override;
    bool is_choosy() const override { return true; }
    bool refuses(int candidate, int victim) const override { return worth(candidate) <= worth(victim); }

   private:
    static constexpr std::size_t kLargest = 16;

    DecayedCounts counts_;
    Successors successors_;
    Recall recall_;
    std::vector<int> event_;  // distinct experts of the current event, ascending once all are known
    std::vector<int> before_;
};

}  // namespace slotpool
