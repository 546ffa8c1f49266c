// How many of the planned slots fit into so many bytes: who claims first, and then every group the same share. Pure: knows neither system nor clock.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace slotpool {

// Slots of every group, as planned where they fit into `bytes`. Otherwise claims are served in their order (Claim), each from what the one before
// left, and within one claim the same share of each group's slots, rounded down; what is
// left gives one more slot to each group, in their order, that it has room for: less than the largest slot stays unused. A group may
// end with none.
// `slot_bytes` has an entry for each group of the plan: what one slot of it takes.
std::vector<int> fit_slots(const Plan &plan, std::uint64_t bytes, const std::vector<std::uint64_t> &slot_bytes);

}  // namespace slotpool
