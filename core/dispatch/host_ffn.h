// The expert FFN of some rows, computed by the CPU from slabs the host has, from the layer's first expert matmul to its result: what a
// miss costs where the weights lie. Rows of one expert matmul alone are a chain of one. A wave is a part of the rows, whole experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "abi/ggml_api.h"
#include "dispatch/event_rows.h"
#include "dispatch/expert_chain.h"
#include "dispatch/node_graph.h"
#include "dispatch/routing.h"
#include "dispatch/row_operands.h"
#include "transfer/host_slabs.h"

namespace slotpool {

class HostFfn {
   public:
    explicit HostFfn(const abi::Api &api);
    ~HostFfn();
    HostFfn(const HostFfn &) = delete;
    HostFfn &operator=(const HostFfn &) = delete;

    abi::Backend *backend() const { return backend_; }  // nullptr: the engine has no CPU device
    // True when every node of the chain can be computed for single rows.
    bool can_compute(const ExpertChain &chain) const;

    // Fetches what the rows need from wherever the chain has it: its inputs must be complete. Then compute() needs no device.
    void fetch(const ExpertChain &chain, const EventRows &rows);
    // Computes a wave of the rows that were fetched, from slabs that are there. Its rows of the result follow those of the wave before.
    abi::Status compute(const ExpertChain &chain, const Routing &routing, const EventRows &wave, const HostSlabs &slabs);
    // The rows of the result so far, ne0 floats each, in the order of the waves.
    const float *result() const { return result_.data(); }
    // Bytes that compute() needs for a row.
    static std::size_t bytes_per_row(const ExpertChain &chain);

   private:
    struct Block {  // of a chain node: a row of floats for each row
        std::int64_t ne0 = 0;
        float *data = nullptr;
    };
    bool can_compute(const ExpertChain &chain, const ChainNode &node) const;
    bool has_table(const abi::Tensor *node, std::size_t operand) const;
    void build(const ExpertChain &chain, const Routing &routing, const EventRows &rows, const HostSlabs &slabs);
    void allot_blocks(const ExpertChain &chain, std::size_t n_rows);
    void add_matmul(const ExpertChain &chain, std::size_t index, const Routing &routing, const EventRows &rows, const HostSlabs &slabs);
    void add_elementwise(const ExpertChain &chain, std::size_t index, const Routing &routing, const EventRows &rows);
    abi::Tensor operand(const ExpertChain &chain, const abi::Tensor &src, const Routing &routing, const EventRows &rows);
    abi::Tensor *keep(const abi::Tensor &tensor);

    const abi::Api &api_;
    abi::Backend *backend_;
    NodeGraph graph_;
    RowOperands operands_;
    std::vector<float> scratch_;
    std::vector<Block> blocks_;        // by chain node
    std::vector<std::int32_t> zeros_;  // ids of a tensor with one expert
    std::vector<std::int32_t> counting_;
    std::deque<abi::Tensor> tensors_;  // addresses stay
    std::vector<abi::Tensor *> nodes_;
    std::vector<float> result_;
};

}  // namespace slotpool
