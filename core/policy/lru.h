// Least recently used: the victim is the slot whose last hit or admission is the most events ago, the lower slot where one
// event used both.
//
// A doubly linked list through the slots, oldest at the head; the slots that one event used join it in slot order when the
// event is over. Every step costs what its event uses, whatever the number of slots.
#pragma once

#include "policy/policy.h"

namespace slotpool {

class Lru final : public Policy {
   public:
    explicit Lru(int n_slots);
    void begin_event() override;
    void asked(int, int) override {}
    void hit(int, int slot) override;
    void admitted(int, int slot) override;
    void evicted(int, int slot) override;
    int victim(const PoolView &view) const override;

   private:
    void unlink(int slot);
    void append(int slot);
    void link(int slot);

    std::vector<int> next_;
    std::vector<int> prev_;
    int head_ = kNone;
    int tail_ = kNone;
    std::uint64_t event_ = 0;
    std::vector<std::uint64_t> used_in_;  // by slot: the last event that hit or took it
    std::vector<int> last_used_;          // scratch of begin_event()
};

}  // namespace slotpool
