// Nodes of a split as copies of our own that a device computes: operands from outside are leaves, so that nobody follows them into the
// rest of the model's graph.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "abi/ggml_api.h"
#include "dispatch/node_graph.h"

namespace slotpool {

class DeviceGraph {
   public:
    DeviceGraph(const abi::Api &api, abi::Backend *backend) : api_(api), backend_(backend), graph_(api, backend) {}

    bool is_empty() const { return nodes_.empty(); }
    // A copy of `node` for the next start(). Operands that were added since the last one are its copies, all others leaves.
    abi::Tensor &add(const abi::Tensor &node);
    // Begins to compute what was added. Nothing of it may be touched before finish().
    abi::Status start();
    // Waits for everything that was started.
    void finish();

    // Nothing computes any more at the end of a block, whatever ends it.
    class Finished {
       public:
        explicit Finished(DeviceGraph &graph) : graph_(graph) {}
        ~Finished() { graph_.finish(); }
        Finished(const Finished &) = delete;
        Finished &operator=(const Finished &) = delete;

       private:
        DeviceGraph &graph_;
    };

   private:
    abi::Tensor *copy_of(const abi::Tensor *tensor);
    abi::Tensor *leaf(const abi::Tensor &tensor);

    const abi::Api &api_;
    abi::Backend *backend_;
    NodeGraph graph_;
    std::deque<abi::Tensor> copies_;  // addresses stay
    std::vector<std::pair<const abi::Tensor *, abi::Tensor *>> known_;
    std::vector<abi::Tensor *> nodes_;
    bool is_running_ = false;
};

}  // namespace slotpool
