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

// Copies of operands; they live until the next clear().
class RowOperands {
   public:
    explicit RowOperands(const abi::Api &api) : api_(api) {}

    void clear() { n_used_ = 0; }
    // The operand's row for each of `rows`. Asked twice for one operand it copies once.
    const abi::Tensor &rows_of(const abi::Tensor &operand, const Routing &routing, const EventRows &rows);
    // Row `expert` of a table [n, n_expert] for each of `rows`: [n, rows].
    const abi::Tensor &expert_rows_of(const abi::Tensor &table, const EventRows &rows, const Routing &routing);

   private:
    struct Copy {
        const abi::Tensor *of = nullptr;
        abi::Tensor tensor{};
        std::vector<float> data{};
    };
    Copy *find(const abi::Tensor &operand);
    Copy &next(const abi::Tensor &operand);

    const abi::Api &api_;
    std::deque<Copy> copies_;  // the first n_used_ are in use; a deque: addresses stay
    std::size_t n_used_ = 0;
    std::vector<std::uint8_t> whole_;  // scratch
};

}  // namespace slotpool
