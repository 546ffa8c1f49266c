#include "dispatch/miss_plan.h"

#include <algorithm>

namespace slotpool {
namespace {

void show(const MissCosts &costs, DeviceMemory &on) {
    on.copy_ns.set(static_cast<std::uint64_t>(costs.copy_ns));
    on.host_ns.set(static_cast<std::uint64_t>(costs.host_ns));
    on.hits_ns.set(static_cast<std::uint64_t>(costs.device_ns));
    on.fetch_ns.set(static_cast<std::uint64_t>(costs.fetch_ns));
}

}  // namespace

MissCosts MissPlanner::costs(std::size_t slab_bytes) const {
    const auto bytes = static_cast<double>(slab_bytes);
    return {uploader_.ns_per_byte() * bytes, host_ns_per_byte_.get() * bytes, device_ns_per_event_.get(), fetch_ns_per_event_.get()};
}

MissPlan MissPlanner::plan(const DevicePool &pool, const Plan &plan, Phase phase, std::int64_t n_used, DeviceMemory *shown) const {
    const int n_misses = pool.n_misses();
    // many rows an expert: a copy serves them all, and a CPU is no place for prompts
    if (plan.misses == Misses::copy || (phase == Phase::prompt && plan.misses != Misses::frozen)) return {n_misses, 0, false};
    if (plan.misses == Misses::frozen) return {0, n_misses, true};
    const MissCosts known = costs(pool.slab_bytes());
    if (shown != nullptr) show(known, *shown);
    const int n_copied = plan.misses == Misses::cpu ? 0 : n_to_copy(known, n_misses);
    const int n_room = pool.room_for_later(n_used) - n_copied;
    const auto n_later = static_cast<int>((uploader_.later_bytes() + pool.slab_bytes() - 1) / pool.slab_bytes());
    const int n_free = std::min(n_in_time(known, n_misses - n_copied) - n_later, n_room);
    return {n_copied, plan.is_settled ? n_misses : std::max(0, n_free), false};
}

}  // namespace slotpool
