// How many slots in RAM each group gets: what was planned, or, of experts on disk, what fits the memory that is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "store/session.h"
#include "transfer/slab_source.h"

namespace slotpool {

struct Allotment {
    std::vector<int> slots;      // by group; may be none: then everything passes
    std::size_t ring_bytes = 0;  // for slabs on their way through, long enough for every group
    std::uint64_t taken = 0;     // of the session's budget: slots and ring
    std::uint64_t budget = 0;    // what the session's contexts may take now, with what they have
    std::uint64_t available = 0;
};

// For the groups whose slots are on `device`, CPU or another, which is served from RAM: the others get none. Of experts on disk, asks the
// system what is available now; a group on another device may have all its experts in RAM, and devices get shares by what their groups
// would take. Nothing and one line in `error` when not even the ring has room.
std::optional<Allotment> allot(const Session &session, const SlabSource &source, const std::string &device, std::string &error);

// Held from allot() until the memory is taken, so that the next one sees what was promised.
std::mutex &one_allotment_at_a_time();

}  // namespace slotpool
