// Op numbers move between versions of ggml: each is looked up by name, once.
#include "ops.h"

#include <atomic>
#include <cstring>
#include <vector>

namespace chaos {
namespace {

constexpr int kMaxOps = 512;

struct Named {
    const char *name;
    Kind kind;
};

constexpr Named kNamed[] = {{"NONE", Kind::none},
                            {"VIEW", Kind::view},
                            {"RESHAPE", Kind::view},
                            {"PERMUTE", Kind::view},
                            {"TRANSPOSE", Kind::view},
                            {"MUL_MAT", Kind::matmul},
                            {"MUL_MAT_ID", Kind::expert_matmul},
                            {"GET_ROWS", Kind::get_rows},
                            {"SET_ROWS", Kind::set_rows},
                            {"ADD_ID", Kind::add_id},
                            {"ROPE", Kind::rope},
                            {"ROPE_BACK", Kind::rope}};

Kind classify(int op) {
    const char *name = api().op_name(op);
    for (const Named &named : kNamed) {
        if (std::strcmp(named.name, name) == 0) return named.kind;
    }
    return Kind::other;
}

// the tensor of indices and how many rows there are to point at
struct Indices {
    const abi::Tensor *tensor = nullptr;
    std::int64_t n_rows = 0;
};

Indices indices_of(const abi::Tensor *node) {
    switch (kind_of(node)) {
        case Kind::expert_matmul:
            return {node->src[2], node->src[0]->ne[2]};
        case Kind::get_rows:
            return {node->src[1], node->src[0]->ne[1]};
        case Kind::set_rows:
            return {node->src[1], node->ne[1]};
        case Kind::add_id:
            return {node->src[2], node->src[1]->ne[1]};
        default:
            return {};
    }
}

std::int64_t value_at(const abi::Tensor *t, const std::int64_t (&at)[abi::kMaxDims]) {
    const char *address = static_cast<const char *>(t->data);
    for (int i = 0; i < abi::kMaxDims; i++) address += static_cast<std::size_t>(at[i]) * t->nb[i];
    if (t->type != abi::kTypeI32) return *reinterpret_cast<const std::int64_t *>(address);
    return *reinterpret_cast<const std::int32_t *>(address);
}

template <class Visit>
void each_index(const abi::Tensor *t, Visit visit) {
    std::int64_t at[abi::kMaxDims];
    for (at[3] = 0; at[3] < t->ne[3]; at[3]++)
        for (at[2] = 0; at[2] < t->ne[2]; at[2]++)
            for (at[1] = 0; at[1] < t->ne[1]; at[1]++)
                for (at[0] = 0; at[0] < t->ne[0]; at[0]++) visit(value_at(t, at));
}

}  // namespace

Kind kind_of(const abi::Tensor *node) {
    static std::atomic<Kind> known[kMaxOps];
    if (node->op < 0 || node->op >= kMaxOps) return Kind::other;
    std::atomic<Kind> &kind = known[node->op];
    if (kind.load(std::memory_order_relaxed) == Kind::unknown) kind.store(classify(node->op), std::memory_order_relaxed);
    return kind.load(std::memory_order_relaxed);
}

bool is_skipped(const abi::Tensor *node) {
    const Kind kind = kind_of(node);
    const bool is_empty = node->ne[0] == 0 || node->ne[1] == 0 || node->ne[2] == 0 || node->ne[3] == 0;
    return kind == Kind::none || kind == Kind::view || is_empty || (node->flags & abi::kFlagCompute) == 0;
}

std::int64_t batch_of(const abi::Tensor *node) {
    switch (kind_of(node)) {
        case Kind::get_rows:
            return 0;
        case Kind::matmul:
            return node->ne[1];
        case Kind::expert_matmul:
        case Kind::rope:
            return node->ne[2];
        default:
            return node->ne[1] * node->ne[2] * node->ne[3];
    }
}

std::int64_t tokens_of(const abi::Tensor *node) { return kind_of(node) == Kind::expert_matmul ? node->ne[2] : node->ne[1]; }

bool has_indices(const abi::Tensor *node) { return indices_of(node).tensor != nullptr; }

bool are_indices_in_range(const abi::Tensor *node) {
    const Indices indices = indices_of(node);
    bool ok = true;
    each_index(indices.tensor, [&](std::int64_t row) { ok = ok && row >= 0 && row < indices.n_rows; });
    return ok;
}

std::uint64_t expert_bytes(const abi::Tensor *node) {
    std::vector<bool> seen(static_cast<std::size_t>(node->src[0]->ne[2]));
    std::uint64_t n_distinct = 0;
    each_index(node->src[2], [&](std::int64_t expert) {
        n_distinct += seen[static_cast<std::size_t>(expert)] ? 0 : 1;
        seen[static_cast<std::size_t>(expert)] = true;
    });
    return n_distinct * node->src[0]->nb[2];
}

Ranges expert_ranges(const abi::Tensor *node) {
    Ranges ranges;
    const auto *weight = static_cast<const std::uint8_t *>(node->src[0]->data);
    const std::size_t slab_bytes = node->src[0]->nb[2];
    each_index(node->src[2], [&](std::int64_t expert) { ranges.add(Range::of(weight + static_cast<std::size_t>(expert) * slab_bytes, slab_bytes)); });
    return ranges;
}

}  // namespace chaos
