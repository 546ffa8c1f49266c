#include "plan/fit.h"

namespace slotpool {
namespace {

// 2^16 slots of up to 2^64 bytes in any number of groups: 64 bits are not enough
__extension__ using Wide = unsigned __int128;

Wide slots_of(const PlannedGroup &group) { return static_cast<Wide>(group.slots); }

// The groups of one claim out of `bytes`; returns what they leave.
Wide fit_claim(const Plan &plan, Claim claim, Wide bytes, const std::vector<std::uint64_t> &slot_bytes, std::vector<int> &slots) {
    const auto is_other = [&](std::size_t i) { return plan.groups[i].claim != claim; };
    Wide wanted = 0;
    for (std::size_t i = 0; i < slots.size(); i++) wanted += is_other(i) ? 0 : slots_of(plan.groups[i]) * slot_bytes[i];
    Wide rest = bytes;
    for (std::size_t i = 0; i < slots.size(); i++) {
        if (is_other(i)) continue;
        const Wide share = wanted <= bytes ? slots_of(plan.groups[i]) : slots_of(plan.groups[i]) * bytes / wanted;
        slots[i] = static_cast<int>(share);
        rest -= share * slot_bytes[i];
    }
    for (std::size_t i = 0; i < slots.size(); i++) {
        if (is_other(i) || slots[i] >= plan.groups[i].slots || slot_bytes[i] > rest) continue;
        slots[i]++;
        rest -= slot_bytes[i];
    }
    return rest;
}

}  // namespace

std::vector<int> fit_slots(const Plan &plan, std::uint64_t bytes, const std::vector<std::uint64_t> &slot_bytes) {
    std::vector<int> slots(plan.groups.size());
    Wide rest = bytes;
    for (const Claim claim : {Claim::whole, Claim::stated, Claim::open}) rest = fit_claim(plan, claim, rest, slot_bytes, slots);
    return slots;
}

}  // namespace slotpool
