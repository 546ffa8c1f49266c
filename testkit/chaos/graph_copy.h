// A graph as it was when it was queued: its nodes copied, with addresses that the CPU's kernels can use.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "hazards.h"
#include "memory.h"

namespace chaos {

class GraphCopy {
   public:
    // Copies what is computed of `graph`. On failure `error` says which tensor is not where the device can reach it.
    static std::unique_ptr<GraphCopy> make(Device &device, abi::Graph *graph, std::string &error);

    const std::vector<abi::Tensor *> &nodes() const { return nodes_; }
    Touch touch(const Stream *stream) const;

   private:
    explicit GraphCopy(Device &device) : device_(device) {}
    bool add(const abi::Tensor *node, std::string &error);
    abi::Tensor *copy_of(const abi::Tensor *tensor, std::string &error);
    void read(const abi::Tensor *copy);
    void write(const abi::Tensor *copy, bool is_whole);

    Device &device_;
    std::deque<abi::Tensor> tensors_;
    std::vector<abi::Tensor *> nodes_;
    std::unordered_map<const abi::Tensor *, abi::Tensor *> copies_;
    std::vector<std::shared_ptr<Memory>> memory_;  // may be freed by its owner while we are queued
    Ranges from_outside_, written_, maybe_read_;
};

}  // namespace chaos
