#include "dispatch/dispatch.h"

#include "dispatch/device_dispatch.h"
#include "dispatch/host_dispatch.h"

namespace slotpool {
namespace {

template <class Kind>
std::unique_ptr<Dispatch> made(const Engine &engine, Context &context) {
    auto dispatch = std::make_unique<Kind>(engine, context);
    if (!dispatch->is_ready()) return nullptr;
    return dispatch;
}

}  // namespace

std::unique_ptr<Dispatch> make_dispatch(const Engine &engine, Context &context, const Session *session) {
    const bool is_cpu = engine.api.dev_type(engine.device) == abi::DeviceType::cpu;
    const bool copies = session == nullptr || session->plan.misses == Misses::copy || session->plan.reads_files();
    return is_cpu && copies ? made<HostDispatch>(engine, context) : made<DeviceDispatch>(engine, context);
}

}  // namespace slotpool
