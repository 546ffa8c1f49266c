// How many slots each group of experts on disk gets: what was planned, or what fits the memory that is left.
#pragma once

#include <vector>

#include "store/session.h"
#include "transfer/slab_source.h"

namespace slotpool {

std::vector<int> planned_slots(const Plan &plan);
// Asks the system what is available now; says in the session what had to be cut and why.
std::vector<int> fitting_slots(Session &session, const SlabSource &source);

}  // namespace slotpool
