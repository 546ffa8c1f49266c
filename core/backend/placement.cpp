#include "backend/placement.h"

#include <cstring>
#include <map>
#include <mutex>
#include <new>

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
    const bool is_planned = is_matmul ? session->wants(*weight) : session->plan.biases.count(weight->name) != 0;
    return is_planned ? weight : nullptr;
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
