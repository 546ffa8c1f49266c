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

// What was promised to pools and rings before and is not touched yet still looks available.
std::uint64_t available_now(const Session &session) {
    const os::AvailableMemory now = os::available_memory();
    return less(std::min(now.host, now.cgroup), session.reserve() + os::promised_memory());
}

// Other contexts of the session live on the same budget.
std::uint64_t memory_to_take(const Session &session, std::uint64_t available) {
    const PlannedMemory &memory = session.plan.memory;
    const std::uint64_t most = less(available, rail(memory, available));
    return memory.is_budget_auto ? most : std::min(less(memory.budget, session.taken()), most);
}

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

std::vector<std::uint64_t> slot_bytes_of(const Session &session, const SlabSource &source) {
    std::vector<std::uint64_t> bytes(session.plan.groups.size(), 0);
    for (std::size_t group = 0; group < bytes.size(); group++) {
        for (const auto &tensor : session.tensors_of(static_cast<int>(group))) bytes[group] += source.room(*tensor, 1);
    }
    return bytes;
}

}  // namespace

std::optional<Allotment> allot(const Session &session, const SlabSource &source, std::string &error) {
    Allotment made{planned_slots(session.plan), ring_of(session, source), 0, 0, 0};
    if (!session.files) return made;
    made.taken = made.ring_bytes;
    const std::uint64_t available = available_now(session);
    if (available < made.taken) {
        error = "Expected at least " + std::to_string(made.taken) + " bytes of memory for experts on their way from disk, found " +
                std::to_string(available) + ". Give this process more memory, or take a smaller context";
        return std::nullopt;
    }
    const std::vector<std::uint64_t> slot_bytes = slot_bytes_of(session, source);
    const std::uint64_t to_take = memory_to_take(session, available);
    made.budget = session.taken() + to_take;
    made.available = available;
    made.slots = fit_slots(session.plan, less(to_take, made.taken), slot_bytes);
    for (std::size_t group = 0; group < slot_bytes.size(); group++) made.taken += static_cast<std::uint64_t>(made.slots[group]) * slot_bytes[group];
    return made;
}

}  // namespace slotpool
