// The routing of one (ubatch, group): which expert each row asks for.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/ggml_api.h"

namespace slotpool {

// Rows in (token, k) order.
struct Routing {
    std::vector<std::int32_t> ids;
    std::int64_t n_used = 0;  // k
    std::int64_t n_tokens = 0;

    // Copies the ids out of a strided view in host memory; the view itself is never written to.
    void read(const abi::Tensor &view);
    // The same for a view in any device's memory: one copy from there.
    void read(const abi::Api &api, const abi::Tensor &view);
    std::vector<std::uint8_t> copied;  // scratch

    bool operator==(const Routing &other) const { return n_used == other.n_used && n_tokens == other.n_tokens && ids == other.ids; }
};

}  // namespace slotpool
