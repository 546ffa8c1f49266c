#include "dispatch/allotment.h"

#include <algorithm>

#include "os/memory.h"
#include "plan/fit.h"
#include "transfer/slab_stream.h"
#include "transfer/slab_waves.h"

namespace slotpool {
namespace {

constexpr std::uint64_t kLeastRail = 64U << 20;
constexpr std::uint64_t kRailShare = 50;  // one part in so many: 2 %
constexpr std::uint64_t kMostWaves = 64U << 20;
constexpr std::uint64_t kWavesShare = 4;  // of a small budget, one part in so many is for slabs without a slot

__extension__ using Wide = unsigned __int128;

std::uint64_t less(std::uint64_t from, std::uint64_t taken) { return from > taken ? from - taken : 0; }

std::uint64_t rail(const PlannedMemory &memory, std::uint64_t available) {
    return memory.is_rail_auto ? std::max(kLeastRail, available / kRailShare) : memory.rail;
}

// What was promised to pools and rings before and is not touched yet still looks available.
std::uint64_t available_now(const Session &session) {
    const os::AvailableMemory now = os::available_memory();
    return less(std::min(now.host, now.cgroup), session.reserve() + os::promised_memory());
}

// What the session's contexts may have together.
std::uint64_t memory_to_have(const Session &session, std::uint64_t available) {
    const PlannedMemory &memory = session.plan.memory;
    const std::uint64_t most = less(available, rail(memory, available)) + session.taken();
    return memory.is_budget_auto ? most : std::min(std::max(memory.budget, session.taken()), most);
}

// The most slots in RAM for a group: with a pool on a device behind them, every expert.
int most_slots(const Session &session, std::size_t group) {
    const PlannedGroup &planned = session.plan.groups[group];
    return session.device_of(static_cast<int>(group)) == "CPU" ? planned.slots : planned.n_expert;
}

// The groups of one device, as fit_slots wants them.
Plan plan_of(const Session &session, const std::string &device) {
    Plan here;
    for (std::size_t group = 0; group < session.plan.groups.size(); group++) {
        here.groups.push_back(session.plan.groups[group]);
        here.groups.back().slots = session.device_of(static_cast<int>(group)) == device ? most_slots(session, group) : 0;
    }
    return here;
}

std::vector<std::uint64_t> slot_bytes_of(const Session &session, const SlabSource &source) {
    std::vector<std::uint64_t> bytes(session.plan.groups.size(), 0);
    for (std::size_t group = 0; group < bytes.size(); group++) {
        for (const auto &tensor : session.tensors_of(static_cast<int>(group))) bytes[group] += source.room(*tensor, 1);
    }
    return bytes;
}

// Of all that the session may have, what is for the groups of `here`: by what they would take.
std::uint64_t share_of(const Session &session, const Plan &here, const std::vector<std::uint64_t> &slot_bytes, std::uint64_t bytes) {
    Wide ours = 0;
    Wide all = 0;
    for (std::size_t group = 0; group < slot_bytes.size(); group++) {
        ours += static_cast<Wide>(here.groups[group].slots) * slot_bytes[group];
        all += static_cast<Wide>(most_slots(session, group)) * slot_bytes[group];
    }
    return all == 0 || ours == all ? bytes : static_cast<std::uint64_t>(bytes * ours / all);
}

// For slabs that pass through: a prompt's in a ring, or, beside a device, waves of those that have no slot.
std::size_t ring_of(const Session &session, const SlabSource &source, const Plan &here, bool is_cpu, std::uint64_t bytes) {
    std::size_t most = 0;
    for (std::size_t group = 0; group < here.groups.size(); group++) {
        if (here.groups[group].slots == 0) continue;
        const StoredTensors tensors = session.tensors_of(static_cast<int>(group));
        const std::uint64_t waves = std::min(kMostWaves, bytes / kWavesShare);
        most = std::max(most, is_cpu ? ring_bytes(source, tensors) : SlabWaves::bytes(source, tensors, waves));
    }
    return most;
}

}  // namespace

std::mutex &one_allotment_at_a_time() {
    static std::mutex the_mutex;
    return the_mutex;
}

std::optional<Allotment> allot(const Session &session, const SlabSource &source, const std::string &device, std::string &error) {
    Plan here = plan_of(session, device);
    Allotment made;
    if (!session.files) {
        for (const PlannedGroup &group : session.plan.groups) made.slots.push_back(group.slots);
        made.ring_bytes = ring_of(session, source, session.plan, true, 0);
        return made;
    }
    const std::vector<std::uint64_t> slot_bytes = slot_bytes_of(session, source);
    made.available = available_now(session);
    made.budget = memory_to_have(session, made.available);
    const std::uint64_t to_take = std::min(share_of(session, here, slot_bytes, made.budget), less(made.budget, session.taken()));
    made.taken = made.ring_bytes = ring_of(session, source, here, device == "CPU", to_take);
    if (made.available < made.taken) {
        error = "Expected at least " + std::to_string(made.taken) + " bytes of memory for experts on their way from disk, found " +
                std::to_string(made.available) + ". Give this process more memory, or take a smaller context";
        return std::nullopt;
    }
    made.slots = fit_slots(here, less(to_take, made.taken), slot_bytes);
    for (std::size_t group = 0; group < slot_bytes.size(); group++) made.taken += static_cast<std::uint64_t>(made.slots[group]) * slot_bytes[group];
    return made;
}

}  // namespace slotpool
