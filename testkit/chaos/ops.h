// What the chaos device knows about single nodes: numbers of ops by name, indices that kernels trust, experts of a call.
#pragma once

#include <cstdint>

#include "device.h"
#include "ranges.h"

namespace chaos {

enum class Kind : char { unknown, other, none, view, matmul, expert_matmul, get_rows, set_rows, add_id, rope };

Kind kind_of(const abi::Tensor *node);
// Neither computed nor looked at: views, nodes without elements or without the mark of a computed one.
bool is_skipped(const abi::Tensor *node);
// Rows that an op brings work for, as real devices count them when asked whether weights are worth copying.
std::int64_t batch_of(const abi::Tensor *node);
// Tokens of a call: rows that share no weights, for MUL_MAT_ID those of the ids.
std::int64_t tokens_of(const abi::Tensor *node);

// Whether a node reads rows by index; the indices must be readable here for the other two.
bool has_indices(const abi::Tensor *node);
// Kernels trust their indices: one that is out of range would take the process down.
bool are_indices_in_range(const abi::Tensor *node);
// Distinct experts of a MUL_MAT_ID times the bytes of one.
std::uint64_t expert_bytes(const abi::Tensor *node);
// Where these lie.
Ranges expert_ranges(const abi::Tensor *node);

}  // namespace chaos
