// The backend of a pool device in one context: what ggml calls a stream.
#pragma once

#include <functional>

#include "backend/pool_device.h"
#include "dispatch/dispatch.h"

namespace slotpool {

// A device that ggml does not know (yet) has one as well, for a context cannot do without: nothing is ever asked of it.
abi::Backend *make_pool_stream(PoolDevice &device);

namespace pool_streams {

// Visits the dispatch of every live context of the session. Not while one of them computes.
void each(const Session *session, const std::function<void(Dispatch &)> &visit);

}  // namespace pool_streams
}  // namespace slotpool
