// The streams that the engine's contexts have on devices with slots. A context computes a layer's router there, on a stream that is not
// ours: where an input of a pool device's split comes from another device, nobody but us waits for it.
#pragma once

#include <cstdint>

#include "abi/ggml_api.h"

namespace slotpool::engine_streams {

// A stream of `device` was made on this thread.
void note(abi::Backend *stream, abi::Device *device);
// The number of the stream of `device` that this thread made last and that still lives, 0 for none: a context makes its streams on one
// thread, devices with memory before pool devices.
std::uint64_t made_last(abi::Device *device);
// Waits for everything that was queued on the stream. Nothing to do for one that is gone.
void synchronize(std::uint64_t number);

}  // namespace slotpool::engine_streams
