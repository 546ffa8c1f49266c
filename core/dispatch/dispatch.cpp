#include "dispatch/dispatch.h"

#include "dispatch/host_dispatch.h"

namespace slotpool {

std::unique_ptr<Dispatch> make_dispatch(const Engine &engine, Context &context, const Session *) {
    auto made = std::make_unique<HostDispatch>(engine, context);
    if (!made->is_ready()) return nullptr;
    return made;
}

}  // namespace slotpool
