// How many slots each group of experts on disk gets: what was planned, or what fits the memory that is left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/session.h"
#include "transfer/slab_source.h"

namespace slotpool {

std::vector<int> planned_slots(const Plan &plan);
// Bytes of a ring that is long enough for every group of the session.
std::size_t ring_of(const Session &session, const SlabSource &source);
// Asks the system what is available now. `taken`: bytes of these slots and of a ring. Slots may be none: then everything passes.
// False and one line in `error` when not even the ring has room.
bool fitting_slots(const Session &session, const SlabSource &source, std::vector<int> &slots, std::uint64_t &taken, std::string &error);

}  // namespace slotpool
