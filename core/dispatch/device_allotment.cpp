#include "dispatch/device_allotment.h"

#include <algorithm>

#include "plan/fit.h"
#include "transfer/device_slots.h"

namespace slotpool {
namespace {

constexpr std::uint64_t kDefaultRail = 1U << 30;
constexpr std::uint64_t kUnknown = ~0ULL;

std::uint64_t less(std::uint64_t from, std::uint64_t taken) { return from > taken ? from - taken : 0; }

}  // namespace

DeviceRoom device_room(const abi::Api &api, abi::Device *device, const PlannedDevice *planned, std::uint64_t taken) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    api.dev_memory(device, &free_bytes, &total_bytes);
    DeviceRoom room{free_bytes, 0, kUnknown};
    if (planned != nullptr) room.rail = planned->is_rail_auto ? kDefaultRail : planned->rail;
    if (total_bytes > 0 && planned != nullptr) room.budget = less(room.free, room.rail);
    if (planned != nullptr && !planned->is_budget_auto) room.budget = std::min(room.budget, less(planned->budget, taken));
    return room;
}

std::vector<int> device_slots(const abi::Api &api, abi::Device *device, const Session &session, std::uint64_t bytes) {
    const std::string name = api.dev_type(device) == abi::DeviceType::cpu ? "CPU" : api.dev_name(device);
    Plan here;  // the groups of this device, as fit_slots wants them
    std::vector<std::uint64_t> slot_bytes;
    std::uint64_t fixed = 0;
    for (std::size_t group = 0; group < session.plan.groups.size(); group++) {
        const auto number = static_cast<int>(group);
        here.groups.push_back(session.plan.groups[group]);
        here.groups.back().slots = 0;
        slot_bytes.push_back(0);
        if (session.device_of(number) != name) continue;
        int slots = session.slots_of(number);
        for (const auto &tensor : session.tensors_of(number)) slots = DeviceSlots::most_slots(api, device, *tensor, slots);
        here.groups.back().slots = slots;
        for (const auto &tensor : session.tensors_of(number)) {
            slot_bytes.back() += tensor->slab_bytes;
            fixed +=
                DeviceSlots::bytes(api, device, *tensor, std::max(slots, 1)) - tensor->slab_bytes * static_cast<std::uint64_t>(std::max(slots, 1));
        }
    }
    return fit_slots(here, less(bytes, fixed), slot_bytes);
}

}  // namespace slotpool
