// Nodes of a split that compute one layer's experts: its expert matmuls, and what stands between them.
#pragma once

#include <cstddef>
#include <vector>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

// A node of a chain. `stored` is the weight of an expert matmul, nullptr for what stands between.
struct ChainNode {
    abi::Tensor *node;
    const StoredTensor *stored;
    bool is_view = false;
};

struct ExpertChain {
    std::vector<ChainNode> nodes;  // in the order of the graph; the first is an expert matmul, the last makes the result
    // Every expert matmul of the layer is in it and nothing but its result is used behind it: a row may be computed elsewhere as a whole.
    bool is_whole = false;

    const abi::Tensor *ids() const { return nodes.front().node->src[2]; }
    const StoredTensor &first() const { return *nodes.front().stored; }
    abi::Tensor *result() const { return nodes.back().node; }
    // The node that makes `tensor`, itself or as a view of it; -1 when it comes from outside.
    int maker_of(const abi::Tensor *tensor) const;
};

// True for a node that computes nothing and shows another tensor's memory. An operation in place is none, though it has a view_src.
bool is_view_node(const abi::Api &api, const abi::Tensor *node);

// The whole chain that begins at node `begin` of the split, or that expert matmul alone where there is none.
ExpertChain find_chain(const abi::Api &api, abi::Graph *graph, int begin, int op_mul_mat_id);

}  // namespace slotpool
