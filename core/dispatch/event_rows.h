// The rows of an event, (token, k) pairs, that are computed together: by expert, in order within an expert. All rows of an expert are in
// one call of a kernel, as in the whole matmul: same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace slotpool {

struct ExpertRows {
    std::int32_t expert;
    std::size_t begin;  // of its rows in EventRows::rows
    std::size_t n;
};

struct EventRows {
    std::vector<std::int32_t> rows;
    std::vector<ExpertRows> experts;

    bool empty() const { return rows.empty(); }
    void clear() {
        rows.clear();
        experts.clear();
    }
};

}  // namespace slotpool
