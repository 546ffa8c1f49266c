#include "dispatch/device_graph.h"

#include <algorithm>
#include <iterator>

namespace slotpool {

abi::Tensor &DeviceGraph::add(const abi::Tensor &node) {
    abi::Tensor copy = node;
    for (abi::Tensor *&src : copy.src) src = src == nullptr ? nullptr : copy_of(src);
    // memory that another tensor owns is reached by address, whoever owns it
    copy.view_src = nullptr;
    copy.view_offs = 0;
    copies_.push_back(copy);
    known_.emplace_back(&node, &copies_.back());
    nodes_.push_back(&copies_.back());
    return copies_.back();
}

abi::Tensor *DeviceGraph::copy_of(const abi::Tensor *tensor) {
    const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto &one) { return one.first == tensor; });
    return found == known_.end() ? leaf(*tensor) : found->second;
}

abi::Tensor *DeviceGraph::leaf(const abi::Tensor &tensor) {
    copies_.push_back(tensor);
    abi::Tensor &copy = copies_.back();
    copy.op = 0;  // NONE
    std::fill(std::begin(copy.src), std::end(copy.src), nullptr);
    copy.view_src = nullptr;
    copy.view_offs = 0;
    known_.emplace_back(&tensor, &copy);
    return &copy;
}

abi::Status DeviceGraph::start() {
    is_running_ = is_running_ || !nodes_.empty();
    const abi::Status status = graph_.start(nodes_);
    nodes_.clear();
    known_.clear();
    return status;
}

void DeviceGraph::finish() {
    if (is_running_) api_.synchronize(backend_);
    is_running_ = false;
    nodes_.clear();
    known_.clear();
    copies_.clear();
}

}  // namespace slotpool
