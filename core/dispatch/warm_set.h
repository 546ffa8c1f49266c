// What the slots of a group begin with: the plan's experts, the hottest first, less those that another tier has, and how many of them are
// never evicted.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/plan.h"
#include "pool/pool.h"

namespace slotpool {

struct WarmSet {
    std::vector<Expected> hottest;
    int n_kept = 0;
};

constexpr double kMillionth = 1e-6;

// For `n_slots` slots of the group, when the n_skipped hottest are elsewhere: nobody of the others is kept then.
inline WarmSet warm_set(const Plan &plan, const PlannedGroup &group, int n_slots, int n_skipped = 0) {
    WarmSet set;
    for (std::size_t i = static_cast<std::size_t>(n_skipped); i < group.warm.size(); i++) {
        set.hottest.push_back({group.warm[i].expert, group.warm[i].millionths * kMillionth});
    }
    set.n_kept = n_skipped == 0 ? plan.pinned_slots(group, n_slots) : 0;
    return set;
}

}  // namespace slotpool
