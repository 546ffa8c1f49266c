// Operands of a node for some rows of an event only, in host memory, wherever the node has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "abi/ggml_api.h"
#include "dispatch/event_rows.h"
#include "dispatch/routing.h"

namespace slotpool {

// `rows` rows of ne0 floats, `row_bytes` apart: [ne0, 1, rows], the shape in which kernels take rows of an expert.
abi::Tensor rows_tensor(std::int64_t ne0, std::size_t n_rows, std::size_t row_bytes, void *data);

// True for F32 operands that have one row for everything, or one a token, or one a (token, k) pair, of at most 64 MiB.
bool has_row_operand(const abi::Api &api, const abi::Tensor &operand, const abi::Tensor &node);

// Operands of an event. First what its rows need is fetched, then its rows may be taken a few at a time, from memory of ours alone.
class RowOperands {
   public:
    explicit RowOperands(const abi::Api &api) : api_(api) {}

    // ---- fetching: once for each operand, until clear() ----
    void clear() { fetched_.clear(); }
    void fetch(const abi::Tensor &operand);
    // Row `expert` of a table [n, n_expert] for each expert of `rows`.
    void fetch_table(const abi::Tensor &table, const EventRows &rows);

    // ---- taking, of what was fetched; copies live until the next take_again() ----
    void take_again() { n_used_ = 0; }
    // The operand's row for each of `rows`. Asked twice for one operand it copies once.
    const abi::Tensor &rows_of(const abi::Tensor &operand, const Routing &routing, const EventRows &rows);
    // The table's row for each of `rows`: [n, rows].
    const abi::Tensor &expert_rows_of(const abi::Tensor &table, const EventRows &rows, const Routing &routing);

   private:
    struct Fetched {
        const abi::Tensor *of = nullptr;
        std::vector<std::uint8_t> data{};
        std::vector<std::int32_t> experts{};  // of a table: whose rows these are
    };
    struct Copy {
        const abi::Tensor *of = nullptr;
        abi::Tensor tensor{};
        std::vector<float> data{};
    };
    const Fetched *fetched(const abi::Tensor &operand) const;
    Copy *find(const abi::Tensor &operand);
    Copy &next(const abi::Tensor &operand);

    const abi::Api &api_;
    std::vector<Fetched> fetched_;
    std::deque<Copy> copies_;  // the first n_used_ are in use; a deque: addresses stay
    std::size_t n_used_ = 0;
};

}  // namespace slotpool
