// Which ubatches pass through a device although they do not fit the slots there. Decided by shape, when a graph is built; measured costs count
// only where llama.cpp itself would leave the ubatch to the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plan/plan.h"
#include "stats/stats.h"

namespace slotpool {

// An expert matmul of an ubatch, by shape. `is_offloaded`: llama.cpp would copy its experts to the device as well.
struct MatmulShape {
    std::int64_t n_tokens;
    std::int64_t n_used;
    std::int64_t n_expert;
    std::int64_t n_slots;
    bool is_offloaded;
};

// Experts that so many tokens use, if all were equally likely.
inline double expected_distinct(const MatmulShape &shape) {
    const double share = static_cast<double>(shape.n_used) / static_cast<double>(shape.n_expert);
    return static_cast<double>(shape.n_expert) * (1.0 - std::pow(1.0 - share, static_cast<double>(shape.n_tokens)));
}

// Copies of what is not in slots, and a compute that hides nothing, against the CPU, whose experts take no less with several rows than with one.
// `costs`: of this device; nullptr or zeros: nothing is known.
inline bool is_stream_cheaper(const MatmulShape &shape, const DeviceMemory *costs) {
    if (costs == nullptr || costs->copy_ns.get() == 0 || costs->host_ns.get() == 0) return false;
    const double distinct = expected_distinct(shape);
    const double resident = distinct * static_cast<double>(shape.n_slots) / static_cast<double>(shape.n_expert);
    const double stream_ns = (distinct - resident) * static_cast<double>(costs->copy_ns.get()) + static_cast<double>(costs->hits_ns.get());
    return stream_ns < distinct * static_cast<double>(costs->host_ns.get());
}

// An engine that warms up uses every expert for a token. That passes by.
inline bool does_stream(Prefill prefill, const MatmulShape &shape, const DeviceMemory *costs) {
    if (prefill == Prefill::bypass || shape.n_tokens <= 0 || shape.n_used >= shape.n_expert) return false;
    if (prefill == Prefill::stream) return true;
    // it copies what we copy and more, and nothing beside the compute
    if (shape.is_offloaded) return true;
    return shape.n_tokens > kGenerationTokens && is_stream_cheaper(shape, costs);
}

}  // namespace slotpool
