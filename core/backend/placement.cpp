#include "backend/placement.h"

#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "backend/engine_streams.h"
#include "backend/registry.h"
#include "store/session.h"

namespace slotpool {
namespace {

struct Devices {
    std::mutex mutex;
    std::map<abi::Device *, abi::DeviceTable> own;  // what they were before they answered through us
};

// never destroyed: a device may be asked after our statics would be gone
Devices &devices() {
    static Devices *const the_devices = new Devices;
    return *the_devices;
}

// Empty where the group's slots have a device; else why they have none. Devices are looked for when a model loads: an RPC server is added
// after the plan.
std::string missing_device(const Plan &plan, int group) {
    const std::string &wanted = plan.groups[static_cast<std::size_t>(group)].device;
    std::string missing;
    for (const PlannedDevice &device : plan.devices) {
        if (device.slots == 0 || (wanted != "auto" && wanted != device.name)) continue;
        if (registry_api().dev_by_name(device.name.c_str()) != nullptr) return {};
        missing += (missing.empty() ? "" : " or ") + device.name;
    }
    return missing.empty() ? "" : "the program has no device " + missing + ": its --list-devices shows those it has";
}

bool has_device(Session &session, int group) {
    const std::string reason = missing_device(session.plan, group);
    if (!reason.empty() && session.off_reason(group) != reason) session.switch_off(group, reason);
    return reason.empty();
}

// The group of a planned expert tensor that has no place yet, or of a planned bias; -1 for any other weight.
int wanted_group(Session &session, const abi::Tensor &weight, bool is_expert) {
    if (is_expert) return session.wants(weight) ? session.plan.find(weight.name)->group : -1;
    const auto bias = session.plan.biases.find(weight.name);
    return bias == session.plan.biases.end() ? -1 : bias->second;
}

const abi::DeviceTable &own_of(abi::Device *device) {
    const std::lock_guard<std::mutex> lock(devices().mutex);
    return devices().own.at(device);  // stays where it is
}

bool supports_op(abi::Device *device, const abi::Tensor *op) { return planned_in_question(op) == nullptr && own_of(device).supports_op(device, op); }

abi::Backend *init_backend(abi::Device *device, const char *parameters) {
    abi::Backend *stream = own_of(device).init_backend(device, parameters);
    if (stream == nullptr) return nullptr;
    try {
        engine_streams::note(stream, device);
    } catch (const std::bad_alloc &) {  // ggml is C: no exception may leave through it
        stream->iface.free(stream);
        return nullptr;
    }
    return stream;
}

}  // namespace

const abi::Tensor *planned_in_question(const abi::Tensor *op) {
    const bool is_matmul = op->op == op_mul_mat_id();
    const bool is_addition = !is_matmul && std::strcmp(registry_api().op_name(op->op), "ADD_ID") == 0;
    if (!is_matmul && !is_addition) return nullptr;
    const abi::Tensor *weight = op->src[is_matmul ? 0 : 1];
    const bool is_dummy = weight != nullptr && weight->buffer != nullptr && weight->buffer->context == nullptr && weight->buffer->size == 0 &&
                          weight->buffer->usage != abi::kUsageWeights;
    const auto session = is_dummy ? sessions::loading() : nullptr;
    if (!session) return nullptr;
    const int group = wanted_group(*session, *weight, is_matmul);
    return group >= 0 && has_device(*session, group) ? weight : nullptr;
}

void keep_experts_off(const Plan &plan) {
    for (const PlannedDevice &planned : plan.devices) {
        abi::Device *device = registry_api().dev_by_name(planned.name.c_str());
        if (device == nullptr) continue;
        const std::lock_guard<std::mutex> lock(devices().mutex);
        if (!devices().own.emplace(device, device->iface).second) continue;
        device->iface.supports_op = supports_op;
        device->iface.init_backend = init_backend;
    }
}

}  // namespace slotpool
