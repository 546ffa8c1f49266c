#include "dispatch/allotment.h"

#include <algorithm>

#include "os/memory.h"
#include "plan/fit.h"
#include "transfer/slab_stream.h"

namespace slotpool {
namespace {

constexpr std::uint64_t kLeastRail = 64U << 20;
constexpr std::uint64_t kRailShare = 50;  // one part in so many: 2 %

std::uint64_t less(std::uint64_t from, std::uint64_t taken) { return from > taken ? from - taken : 0; }

std::uint64_t rail(const PlannedMemory &memory, std::uint64_t available) {
    return memory.is_rail_auto ? std::max(kLeastRail, available / kRailShare) : memory.rail;
}

// The ring is made when a prompt comes, but it is paid for from the start. What was promised to pools and rings before and is not
// touched yet still looks available; other contexts of the session live on the same budget.
std::uint64_t memory_for_slots(const Session &session, std::uint64_t ring) {
    const PlannedMemory &memory = session.plan.memory;
    const os::AvailableMemory now = os::available_memory();
    const std::uint64_t available = less(std::min(now.host, now.cgroup), session.reserve() + os::promised_memory());
    const std::uint64_t most = less(available, rail(memory, available));
    return less(memory.is_budget_auto ? most : std::min(less(memory.budget, session.taken()), most), ring);
}

}  // namespace

std::vector<int> planned_slots(const Plan &plan) {
    std::vector<int> slots;
    for (const PlannedGroup &group : plan.groups) slots.push_back(group.slots);
    return slots;
}

std::size_t ring_of(const Session &session, const SlabSource &source) {
    std::size_t bytes = 0;
    for (std::size_t group = 0; group < session.plan.groups.size(); group++) {
        bytes = std::max(bytes, ring_bytes(source, session.tensors_of(static_cast<int>(group))));
    }
    return bytes;
}

std::vector<int> fitting_slots(Session &session, const SlabSource &source, std::uint64_t &taken) {
    std::vector<std::uint64_t> slot_bytes;
    for (std::size_t group = 0; group < session.plan.groups.size(); group++) {
        std::uint64_t bytes = 0;
        for (const auto &tensor : session.tensors_of(static_cast<int>(group))) bytes += source.room(*tensor, 1);
        slot_bytes.push_back(bytes);
    }
    taken = ring_of(session, source);
    const std::vector<int> slots = fit_slots(session.plan, memory_for_slots(session, taken), slot_bytes);
    for (std::size_t group = 0; group < slots.size(); group++) taken += static_cast<std::uint64_t>(slots[group]) * slot_bytes[group];
    return slots;
}

}  // namespace slotpool
