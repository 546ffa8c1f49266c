// How the misses of an event are served: so many copied before use, so many for later, the others by the CPU. Decided from the plan and from
// what was measured so far. Copies nothing and computes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dispatch/device_pool.h"
#include "dispatch/miss_costs.h"
#include "plan/plan.h"
#include "stats/stats.h"
#include "transfer/uploader.h"

namespace slotpool {

class MissPlanner {
   public:
    explicit MissPlanner(const Uploader &uploader) : uploader_(uploader) {}

    // The event that `pool` has looked up; `n_used` experts a token. `shown`: where readers in other processes look for what decides, or nullptr.
    MissPlan plan(const DevicePool &pool, const Plan &plan, Phase phase, std::int64_t n_used, DeviceMemory *shown) const;

    // What was measured, of whole chains only.
    void note_host(std::uint64_t ns, double n_bytes) { host_ns_per_byte_.add(static_cast<double>(ns) / n_bytes); }
    void note_hits(std::uint64_t ns) { device_ns_per_event_.add(static_cast<double>(ns)); }
    void note_fetch(std::uint64_t ns) { fetch_ns_per_event_.add(static_cast<double>(ns)); }

   private:
    MissCosts costs(std::size_t slab_bytes) const;

    const Uploader &uploader_;
    RunningMean host_ns_per_byte_;
    RunningMean device_ns_per_event_;
    RunningMean fetch_ns_per_event_;
};

}  // namespace slotpool
