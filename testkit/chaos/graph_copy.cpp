// Copies the nodes and, of tensors that come from elsewhere, what a kernel reads: shape, strides, address.
#include "graph_copy.h"

#include <algorithm>

#include "ops.h"

namespace chaos {

std::unique_ptr<GraphCopy> GraphCopy::make(Device &device, abi::Graph *graph, std::string &error) {
    std::unique_ptr<GraphCopy> made(new GraphCopy(device));
    const int n_nodes = api().graph_n_nodes(graph);
    for (int i = 0; i < n_nodes; i++) {
        const abi::Tensor *node = api().graph_node(graph, i);
        if (!is_skipped(node) && !made->add(node, error)) return nullptr;
    }
    return made;
}

bool GraphCopy::add(const abi::Tensor *node, std::string &error) {
    abi::Tensor *copy = copy_of(node, error);
    if (copy == nullptr) return false;
    for (int i = 0; i < abi::kMaxSrc; i++) {
        if (node->src[i] == nullptr) continue;
        copy->src[i] = copy_of(node->src[i], error);
        if (copy->src[i] == nullptr) return false;
        if (kind_of(node) == Kind::expert_matmul && i == 0) {
            maybe_read_.add(Range::of(copy->src[i]->data, api().nbytes(copy->src[i])));
        } else {
            read(copy->src[i]);
        }
    }
    write(copy, node->view_src == nullptr);  // into a view: the rest of what it views stays as it was
    nodes_.push_back(copy);
    return true;
}

abi::Tensor *GraphCopy::copy_of(const abi::Tensor *tensor, std::string &error) {
    const auto known = copies_.find(tensor);
    if (known != copies_.end()) return known->second;
    std::shared_ptr<Memory> memory = memory_of(tensor);
    if (!memory || &memory->device() != &device_ || !memory->holds(tensor->data, api().nbytes(tensor))) {
        error = std::string("Expected ") + tensor->name + " in memory of " + device_.name + ", found it elsewhere";
        return nullptr;
    }
    abi::Tensor &copy = tensors_.emplace_back(*tensor);
    copy.data = memory->at(tensor->data);
    copy.buffer = memory->host_buffer();
    copy.view_src = nullptr;
    copy.view_offs = 0;
    copy.extra = nullptr;
    std::fill(std::begin(copy.src), std::end(copy.src), nullptr);
    if (std::find(memory_.begin(), memory_.end(), memory) == memory_.end()) memory_.push_back(std::move(memory));
    return copies_[tensor] = &copy;
}

void GraphCopy::read(const abi::Tensor *copy) {
    Ranges outside(Range::of(copy->data, api().nbytes(copy)));
    outside.remove(written_);
    from_outside_.add(outside);
}

void GraphCopy::write(const abi::Tensor *copy, bool is_whole) {
    if (!is_whole) read(copy);
    written_.add(Range::of(copy->data, api().nbytes(copy)));
}

Touch GraphCopy::touch(const Stream *stream) const {
    const std::string last = nodes_.empty() ? "no node" : nodes_.back()->name;
    Ranges fresh = written_;
    fresh.remove(from_outside_);
    fresh.remove(maybe_read_);
    return {stream,        &device_, "graph of " + std::to_string(nodes_.size()) + " nodes on " + device_.name + " that ends with " + last,
            from_outside_, written_, fresh,
            maybe_read_};
}

}  // namespace chaos
