// Which slot goes when one is needed. Pure: a policy sees routing and slots as numbers, and touches nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace slotpool {

constexpr int kNone = -1;

// What a policy may know of the pool when it is asked for a victim.
class PoolView {
   public:
    virtual ~PoolView() = default;
    virtual bool is_victim(int slot) const = 0;  // holds bytes, is not pinned or kept, is not being filled
    virtual int expert_in(int slot) const = 0;
};

class Policy {
   public:
    virtual ~Policy() = default;
    // Before the first event. `share`: of the events to come, how many are expected to ask for the expert.
    virtual void seed(int, double) {}
    // Before the expert has a slot for the first time: it never is a victim.
    virtual void keep(int) {}
    virtual void begin_event() {}
    // Once per distinct expert of an event, hit or miss, in order of appearance. `slot` is where the expert is, or is on its
    // way to; kNone when it has none.
    virtual void asked(int expert, int slot) = 0;
    virtual void asked_all() {}  // after the last asked() of an event
    virtual void hit(int expert, int slot) = 0;
    virtual void admitted(int expert, int slot) = 0;
    virtual void evicted(int expert, int slot) = 0;
    // The slot to take, or kNone when no slot is a victim. Never changes the policy.
    virtual int victim(const PoolView &view) const = 0;
    // What an expert is worth to the pool, with a slot or without; only the order of two numbers of one event means something.
    virtual double worth(int) const { return 0.0; }
    // Whether the policy gains by refusing, where misses can be served without a slot; else every miss is admitted there too.
    virtual bool is_choosy() const { return false; }
    // Whether a miss had better stay without a slot than take the victim's: asked only where misses can be served without one.
    virtual bool refuses(int, int) const { return false; }
};

// `name` is "lru", "decay" (frequency decayed by `decay` per event) or "follow" (the same, and what usually comes next). nullptr for an
// unknown name.
std::unique_ptr<Policy> make_policy(const std::string &name, double decay, int n_expert, int n_slots);

}  // namespace slotpool
