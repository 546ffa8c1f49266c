#include "dispatch/node_graph.h"

namespace slotpool {
namespace {

constexpr std::size_t kMostOperands = abi::kMaxSrc + 1;  // and the node itself: leaves need room in a graph as well

}  // namespace

NodeGraph::~NodeGraph() {
    if (context_ != nullptr) api_.free(context_);
}

bool NodeGraph::make_room(std::size_t n_nodes) {
    if (n_nodes <= capacity_) return true;
    if (context_ != nullptr) api_.free(context_);
    capacity_ = 2 * n_nodes;
    context_ = api_.init({api_.graph_overhead(capacity_, false), nullptr, true});
    graph_ = context_ == nullptr ? nullptr : api_.new_graph(context_, capacity_, false);
    if (graph_ == nullptr) capacity_ = 0;
    return graph_ != nullptr;
}

abi::Status NodeGraph::compute(const std::vector<abi::Tensor *> &nodes) {
    if (nodes.empty()) return abi::Status::success;
    if (!make_room(nodes.size())) return abi::Status::alloc_failed;
    api_.graph_clear(graph_);
    for (abi::Tensor *node : nodes) api_.graph_add_node(graph_, node);
    return api_.graph_compute(backend_, graph_);
}

abi::Status NodeGraph::start(const std::vector<abi::Tensor *> &nodes) {
    if (nodes.empty()) return abi::Status::success;
    if (!make_room(kMostOperands * nodes.size())) return abi::Status::alloc_failed;
    api_.graph_clear(graph_);
    for (abi::Tensor *node : nodes) api_.build_forward_expand(graph_, node);
    return api_.graph_compute_async(backend_, graph_);
}

}  // namespace slotpool
