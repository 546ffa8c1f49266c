// One split of the graph: expert matmuls of pooled tensors are re-pointed at slots, everything else is passed on.
//
// Correct by construction: a row of an expert matmul is computed exactly once, by one call of the device's own kernel,
// from a slot that holds the slab of the row's expert, or from the store itself: as a whole where it is host memory, expert by
// expert on their way through a ring where it is a disk.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "abi/ggml_api.h"
#include "dispatch/graph_facts.h"
#include "dispatch/layer_pool.h"
#include "dispatch/node_graph.h"
#include "dispatch/part_matmul.h"
#include "store/session.h"

namespace slotpool {

class Dispatch {
   public:
    // `device` computes and holds the slots.
    Dispatch(const abi::Api &api, abi::Device *device, int op_mul_mat_id);
    ~Dispatch();
    Dispatch(const Dispatch &) = delete;
    Dispatch &operator=(const Dispatch &) = delete;

    bool is_ready() const { return device_backend_ != nullptr; }
    // From now on this context belongs to `session`; a session's second model or another session is not pooled here.
    void adopt(std::shared_ptr<Session> session);
    const std::shared_ptr<Session> &session() const { return session_; }

    // An ubatch of the context begins, on the graph that was built last or on the one before.
    void begin_ubatch();
    abi::Backend *device_backend() { return device_backend_; }
    abi::Status compute(abi::Graph *graph);

    LayerPool *pool_of(std::size_t group) { return group < pools_.size() ? pools_[group].get() : nullptr; }

   private:
    abi::Status add_expert_matmul(abi::Tensor *node, const StoredTensor &stored);
    abi::Status serve(abi::Tensor *node, const StoredTensor &stored, LayerPool &pool, bool is_passing);
    abi::Status compute_in_parts(abi::Tensor *node, std::size_t index, LayerPool &pool);
    abi::Status fail(LayerPool &pool, const std::string &error);
    bool may_serve(const StoredTensor &stored);
    void make_pool(std::size_t group, bool is_on_disk);
    bool allot_slots(std::string &error);
    bool make_all_pools(std::string &error);
    LayerPool *layer_pool(const StoredTensor &stored);
    bool is_refused(std::size_t group, std::int64_t n_used, std::int64_t n_tokens) const;
    void settle(const abi::Tensor *node);
    void count_refusals(int times);
    void refuse(std::size_t group);
    Phase phase(std::int64_t n_tokens);
    bool is_pending(const abi::Tensor *tensor) const;
    void add(abi::Tensor *node);
    abi::Status flush();
    abi::Tensor *clone(const abi::Tensor &tensor);

    const abi::Api &api_;
    abi::Device *device_;
    int op_mul_mat_id_;
    abi::Backend *device_backend_ = nullptr;

    std::shared_ptr<Session> session_;
    std::shared_ptr<ContextCounts> counts_;
    std::unique_ptr<SlabSource> source_;
    std::unique_ptr<PartMatmul> parts_;
    std::vector<int> slots_;                         // by group, known from the first compute on
    std::uint64_t taken_ = 0;                        // of the session's budget
    std::vector<std::unique_ptr<LayerPool>> pools_;  // by group
    std::vector<bool> is_off_;                       // by group: its slots could not be allocated
    std::vector<std::uint64_t> refused_in_;          // by group: the last ubatch counted as refused
    std::uint64_t ubatch_ = 1;
    GraphFacts graph_of_ubatch_;
    GraphFacts graph_before_;  // in case the one above turns out to be another context's
    bool is_settled_ = true;
    std::vector<std::int64_t> waiting_;  // by group: refusals before the context had a session

    NodeGraph graph_;
    std::vector<abi::Tensor *> pending_;
    std::deque<abi::Tensor> clones_;  // addresses stay
    Routing routing_;
};

}  // namespace slotpool
