// Least recently used: the victim is the slot whose last hit or admission is the most events ago, the lower slot where one
// event used both.
//
// A doubly linked ring through the slots, oldest first after the anchor. A slot that the current event used is taken out, and
// joins it again, in slot order, when the event is over: it is no victim until then. Every step costs what its event uses,
// whatever the number of slots.
#pragma once

#include "policy/kept.h"
#include "policy/policy.h"

namespace slotpool {

class Lru final : public Policy {
   public:
    explicit Lru(int n_slots);
    void keep(int expert) override { kept_.add(expert); }
    void begin_event() override;
    void asked(int, int) override {}
    void hit(int expert, int slot) override;
    void admitted(int expert, int slot) override;
    void evicted(int expert, int slot) override;
    int victim(const PoolView &view) const override;

   private:
    struct Link {
        int before;
        int after;
    };

    Link &link(int slot) { return links_[static_cast<std::size_t>(slot)]; }
    void unlink(int slot);
    void append(int slot);

    int anchor_;               // one past the last slot: before the oldest, after the newest
    std::vector<Link> links_;  // by slot, and the anchor's
    std::vector<int> used_;    // by the current event, not in the ring
    KeptExperts kept_;         // whose slots are never in it
};

}  // namespace slotpool
