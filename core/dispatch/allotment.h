// How many slots each group gets: what was planned, or, of experts on disk, what fits the memory that is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/session.h"
#include "transfer/slab_source.h"

namespace slotpool {

struct Allotment {
    std::vector<int> slots;      // by group; may be none: then everything passes
    std::size_t ring_bytes = 0;  // long enough for every group
    std::uint64_t taken = 0;     // of the session's budget: slots and ring
    std::uint64_t budget = 0;    // what the session's contexts may take now, with what they have
    std::uint64_t available = 0;
};

// Of experts on disk, asks the system what is available now. Nothing and one line in `error` when not even the ring has room.
std::optional<Allotment> allot(const Session &session, const SlabSource &source, std::string &error);

}  // namespace slotpool
