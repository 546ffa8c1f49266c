// Graphs with their tensors in memory of one device, computed one after the other on a backend of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/ggml_api.h"

namespace slotpool::probe {

class DeviceGraph {
   public:
    // At most so many nodes and tensors that are none; a graph has nodes_per_graph of the nodes, in the order in which they were added.
    DeviceGraph(const abi::Api &api, abi::Device *device, int n_nodes, int n_leaves, int nodes_per_graph);
    ~DeviceGraph();
    DeviceGraph(const DeviceGraph &) = delete;
    DeviceGraph &operator=(const DeviceGraph &) = delete;

    abi::Context *context() const { return context_; }
    abi::Tensor *weight(int type, std::int64_t ne0, std::int64_t ne1, std::int64_t ne2) { return made(weights_, type, ne0, ne1, ne2); }
    abi::Tensor *input(int type, std::int64_t ne0) { return made(inputs_, type, ne0, 1, 1); }
    void add(abi::Tensor *node) { nodes_.push_back(node); }
    const abi::Tensor *first_node() const { return nodes_.empty() ? nullptr : nodes_.front(); }
    // Puts everything into memory; every byte of a weight is `fill`, of the rest 0. Weights lie in memory of a type of their own where one is
    // given. False and why in `error` where the device has no room, or cannot compute a node.
    bool place(std::uint8_t fill, std::string &error, abi::BufferType *of_weights = nullptr);
    // Computes the next graph, after the last the first again. The number of its nodes, 0 where it failed.
    std::size_t compute(int n_threads);

   private:
    using Tensors = std::vector<abi::Tensor *>;
    abi::Tensor *made(Tensors &list, int type, std::int64_t ne0, std::int64_t ne1, std::int64_t ne2);
    bool supports_all(std::string &error) const;
    bool place_in(abi::BufferType *type, const Tensors &tensors, std::uint8_t fill);
    bool cut_into_graphs();

    const abi::Api &api_;
    abi::Device *device_;
    std::size_t nodes_per_graph_;
    abi::Backend *backend_ = nullptr;
    abi::Context *context_ = nullptr;
    Tensors weights_, inputs_, nodes_;
    struct Part {
        abi::Graph *graph;
        std::size_t n_nodes;
    };
    std::vector<Part> parts_;
    std::vector<abi::Buffer *> buffers_;
    std::size_t n_computed_ = 0;
    int n_threads_ = 0;
};

}  // namespace slotpool::probe
