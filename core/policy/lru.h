// Least recently used: a doubly linked list through the slots, oldest at the head. Every step is O(1).
#pragma once

#include "policy/policy.h"

namespace slotpool {

class Lru final : public Policy {
   public:
    explicit Lru(int n_slots);
    void asked(int) override {}
    void hit(int, int slot) override;
    void admitted(int, int slot) override;
    void evicted(int, int slot) override;
    int victim(const PoolView &view) const override;

   private:
    void unlink(int slot);
    void append(int slot);

    std::vector<int> next_;
    std::vector<int> prev_;
    int head_ = kNone;
    int tail_ = kNone;
};

}  // namespace slotpool
