#include "backend/placement.h"

#include <map>
#include <mutex>

#include "backend/registry.h"
#include "store/session.h"

namespace slotpool {
namespace {

using SupportsOp = bool (*)(abi::Device *, const abi::Tensor *);

struct Devices {
    std::mutex mutex;
    std::map<abi::Device *, SupportsOp> own_answers;
};

// never destroyed: a device may be asked after our statics would be gone
Devices &devices() {
    static Devices *const the_devices = new Devices;
    return *the_devices;
}

bool supports_op(abi::Device *device, const abi::Tensor *op) {
    if (is_question_about_planned(op)) return false;
    SupportsOp own_answer = nullptr;
    {
        const std::lock_guard<std::mutex> lock(devices().mutex);
        own_answer = devices().own_answers.at(device);
    }
    return own_answer(device, op);
}

}  // namespace

bool is_question_about_planned(const abi::Tensor *op) {
    if (op->op != op_mul_mat_id() || op->src[0] == nullptr) return false;
    const abi::Tensor *weight = op->src[0];
    const bool is_dummy =
        weight->buffer != nullptr && weight->buffer->context == nullptr && weight->buffer->size == 0 && weight->buffer->usage != abi::kUsageWeights;
    if (!is_dummy) return false;
    const auto session = sessions::loading();
    return session && session->plan.find(weight->name) != nullptr;
}

void keep_experts_off(const Plan &plan) {
    for (const PlannedDevice &planned : plan.devices) {
        abi::Device *device = registry_api().dev_by_name(planned.name.c_str());
        if (device == nullptr || planned.slots == 0) continue;
        const std::lock_guard<std::mutex> lock(devices().mutex);
        if (!devices().own_answers.emplace(device, device->iface.supports_op).second) continue;
        device->iface.supports_op = supports_op;
    }
}

}  // namespace slotpool
