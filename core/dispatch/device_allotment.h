// How many slots each group gets on a device: as planned, or what the device has room for when they are allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

struct DeviceRoom {
    std::uint64_t free = 0;
    std::uint64_t rail = 0;
    std::uint64_t budget = 0;  // for slots of one more context; all bits set: the device does not say how much it has
};

// `taken`: what the session's other contexts have there; they live on the same budget.
DeviceRoom device_room(const abi::Api &api, abi::Device *device, const PlannedDevice *planned, std::uint64_t taken);

// Slots by group, 0 for groups of other devices: all pools of the device are scaled down evenly to what `bytes` hold, however few that
// leaves to each.
std::vector<int> device_slots(const abi::Api &api, abi::Device *device, const Session &session, std::uint64_t bytes);

}  // namespace slotpool
