// The offline optimum: hits of a pool that knows all events beforehand, under the rules of the pool. Names no slots to anybody.
//
// Why it is optimal, and of what it is the bound: slotpool.policies.belady, which it equals event by event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "policy/policy.h"

namespace slotpool {

// Events as they are replayed. The experts of event i are ids[first[i]] to ids[first[i + 1]].
struct EventList {
    const std::int32_t *ids;
    const std::int64_t *first;       // [n_events + 1]
    const std::uint8_t *is_passing;  // [n_events]: too large for the slots
    std::size_t n_events;
};

class Belady {
   public:
    // May refuse: a miss need not be admitted, and an event that passes is one like any other. May not: the pool's rules, only the
    // victims are chosen. Ids must be in [0, n_expert).
    Belady(const EventList &events, int n_expert, int n_slots, bool may_refuse);
    // In distinct experts.
    struct Found {
        int lookups;
        int hits;
    };
    // What the next event finds.
    Found step();

   private:
    struct Expert {
        std::int32_t slot = kNone;
        std::int32_t n_rows = 0;
        std::int64_t next_event = kNever;
        std::int64_t next_use = 0;
        std::int64_t seen_in = -1;
    };
    // a use is the number of its event and, below it, the expert: of two in one event the higher expert counts as later
    static constexpr std::int64_t kExperts = std::int64_t{1} << 20;
    static constexpr std::int64_t kNever = std::int64_t{1} << 42;

    void find_next_uses();
    Found collect();
    void admit(int expert, bool may_evict);
    int farthest_slot() const;
    static std::int64_t use(std::int64_t event, int expert) { return event * kExperts + expert; }
    Expert &expert(int index) { return experts_[static_cast<std::size_t>(index)]; }

    EventList events_;
    std::size_t n_slots_;
    bool may_refuse_;
    std::int64_t event_ = 0;
    std::vector<Expert> experts_;
    std::vector<std::int64_t> next_event_;  // by row: the next event that asks for its expert
    std::vector<std::int64_t> held_;        // by slot: the next use of who holds it
    std::vector<std::int32_t> holder_;      // by slot
    std::vector<std::int32_t> misses_;      // of the event, in order of appearance
};

}  // namespace slotpool
