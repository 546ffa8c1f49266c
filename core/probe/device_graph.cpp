#include "probe/device_graph.h"

#include <algorithm>

#include "dispatch/backend_settings.h"

namespace slotpool::probe {
namespace {

constexpr std::size_t kTail = 4096;       // kernels may read a little past the last expert
constexpr std::size_t kMostOperands = 3;  // of a node, which need room in its graph as well

std::size_t aligned(std::size_t bytes, std::size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

DeviceGraph::DeviceGraph(const abi::Api &api, abi::Device *device, int n_nodes, int n_leaves, int nodes_per_graph)
    : api_(api), device_(device), nodes_per_graph_(static_cast<std::size_t>(nodes_per_graph)) {
    const auto n_all = static_cast<std::size_t>(n_nodes);
    const std::size_t n_graphs = n_all / nodes_per_graph_ + 1;
    const std::size_t graphs = n_graphs * api.graph_overhead((kMostOperands + 1) * nodes_per_graph_, false);
    context_ = api.init({(n_all + static_cast<std::size_t>(n_leaves)) * api.tensor_overhead() + graphs, nullptr, true});
    backend_ = api.dev_init(device, nullptr);
}

DeviceGraph::~DeviceGraph() {
    for (abi::Buffer *buffer : buffers_) api_.buffer_free(buffer);
    if (backend_ != nullptr) api_.backend_free(backend_);
    if (context_ != nullptr) api_.free(context_);
}

abi::Tensor *DeviceGraph::made(Tensors &list, int type, std::int64_t ne0, std::int64_t ne1, std::int64_t ne2) {
    list.push_back(api_.new_tensor_4d(context_, type, ne0, ne1, ne2, 1));
    return list.back();
}

bool DeviceGraph::supports_all(std::string &error) const {
    for (const abi::Tensor *node : nodes_) {
        if (api_.dev_supports_op(device_, node)) continue;
        error = std::string(api_.dev_name(device_)) + " cannot compute " + api_.op_name(node->op) + " of " + api_.type_name(node->src[0]->type);
        return false;
    }
    return true;
}

bool DeviceGraph::place(std::uint8_t fill, std::string &error, abi::BufferType *of_weights) {
    if (context_ == nullptr || backend_ == nullptr) {
        error = std::string("Expected a backend of ") + api_.dev_name(device_) + ", found none";
        return false;
    }
    if (!supports_all(error)) return false;
    abi::BufferType *type = api_.dev_buffer_type(device_);
    Tensors others = inputs_;
    others.insert(others.end(), nodes_.begin(), nodes_.end());
    if (place_in(of_weights == nullptr ? type : of_weights, weights_, fill) && place_in(type, others, 0) && cut_into_graphs()) return true;
    error = std::string(api_.dev_name(device_)) + " has no memory for it";
    return false;
}

bool DeviceGraph::place_in(abi::BufferType *type, const Tensors &tensors, std::uint8_t fill) {
    if (tensors.empty()) return true;
    const std::size_t alignment = std::max<std::size_t>(1, api_.buft_alignment(type));
    std::size_t bytes = kTail + alignment;
    for (const abi::Tensor *tensor : tensors) bytes += aligned(api_.buft_alloc_size(type, tensor), alignment);
    if (bytes > api_.buft_max_size(type)) return false;
    abi::Buffer *buffer = api_.buft_alloc(type, bytes);
    if (buffer == nullptr) return false;
    buffers_.push_back(buffer);
    api_.buffer_clear(buffer, fill);
    std::size_t at = aligned(reinterpret_cast<std::uintptr_t>(api_.buffer_base(buffer)), alignment);
    for (abi::Tensor *tensor : tensors) {
        // ggml ends the process where a tensor that is a view, or has a place, is given one
        if (tensor->view_src != nullptr) continue;
        if (api_.tensor_alloc(buffer, tensor, reinterpret_cast<void *>(at)) != abi::Status::success) return false;
        at += aligned(api_.buft_alloc_size(type, tensor), alignment);
    }
    return true;
}

bool DeviceGraph::cut_into_graphs() {
    for (std::size_t first = 0; first < nodes_.size(); first += nodes_per_graph_) {
        abi::Graph *graph = api_.new_graph(context_, (kMostOperands + 1) * nodes_per_graph_, false);
        if (graph == nullptr) return false;
        const std::size_t end = std::min(nodes_.size(), first + nodes_per_graph_);
        for (std::size_t i = first; i < end; i++) api_.build_forward_expand(graph, nodes_[i]);
        parts_.push_back({graph, end - first});
    }
    return !parts_.empty();
}

std::size_t DeviceGraph::compute(int n_threads) {
    if (n_threads != n_threads_) set_backend_threads(api_, backend_, n_threads_ = n_threads);
    const Part &part = parts_[n_computed_++ % parts_.size()];
    return api_.graph_compute(backend_, part.graph) == abi::Status::success ? part.n_nodes : 0;
}

}  // namespace slotpool::probe
