// A graph of nodes that are computed together on one backend; grows as needed.
#pragma once

#include <cstddef>
#include <vector>

#include "abi/ggml_api.h"

namespace slotpool {

class NodeGraph {
   public:
    NodeGraph(const abi::Api &api, abi::Backend *backend) : api_(api), backend_(backend) {}
    ~NodeGraph();
    NodeGraph(const NodeGraph &) = delete;
    NodeGraph &operator=(const NodeGraph &) = delete;

    // Computes the nodes in order. Nothing to do is success.
    abi::Status compute(const std::vector<abi::Tensor *> &nodes);
    // The same without waiting, for nodes whose other operands are leaves: a graph as a model builds it, so that a device may fuse nodes.
    // The nodes must stay where they are until the backend was synchronised.
    abi::Status start(const std::vector<abi::Tensor *> &nodes);

   private:
    bool make_room(std::size_t n_nodes);

    const abi::Api &api_;
    abi::Backend *backend_;
    abi::Context *context_ = nullptr;
    abi::Graph *graph_ = nullptr;
    std::size_t capacity_ = 0;
};

}  // namespace slotpool
