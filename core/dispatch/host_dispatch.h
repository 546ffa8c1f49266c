// Expert matmuls of pooled tensors are re-pointed at slots in host memory, everything else is passed on.
//
// A row is computed from a slot that holds the slab of its expert, or from the store itself: as a whole where it is host memory, expert
// by expert on their way through a ring where it is a disk.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/dispatch.h"
#include "dispatch/layer_pool.h"
#include "dispatch/node_graph.h"
#include "dispatch/part_matmul.h"

namespace slotpool {

class HostDispatch final : public Dispatch {
   public:
    HostDispatch(const Engine &engine, Context &context);
    ~HostDispatch() override;
    HostDispatch(const HostDispatch &) = delete;
    HostDispatch &operator=(const HostDispatch &) = delete;

    bool is_ready() const { return backend_ != nullptr; }
    abi::Status compute(abi::Graph *graph) override;
    void set_n_threads(int n_threads) override;
    void set_abort_callback(abi::AbortCallback callback, void *data) override;
    int damage(std::size_t group, Damage damage) override;

   private:
    abi::Status add_expert_matmul(abi::Tensor *node, const StoredTensor &stored);
    abi::Status serve(abi::Tensor *node, const StoredTensor &stored, LayerPool &pool, bool is_passing);
    abi::Status compute_in_parts(abi::Tensor *node, std::size_t index, LayerPool &pool);
    abi::Status fail(LayerPool &pool, const std::string &error);
    void prepare();
    void make_pool(std::size_t group, bool is_on_disk);
    bool allot_slots(std::string &error);
    bool make_all_pools(std::string &error);
    bool make_layer_pool(std::size_t group, std::string &error);
    bool is_here(std::size_t group) const;
    LayerPool *layer_pool(const StoredTensor &stored);
    bool is_too_large(std::size_t group, std::int64_t n_used, std::int64_t n_tokens) const;
    bool is_pending(const abi::Tensor *tensor) const;
    void add(abi::Tensor *node);
    abi::Status flush();
    abi::Tensor *clone(const abi::Tensor &tensor);

    const Engine engine_;
    const abi::Api &api_;
    Context &context_;
    abi::Backend *backend_ = nullptr;

    std::unique_ptr<SlabSource> source_;
    std::unique_ptr<PartMatmul> parts_;
    std::vector<int> slots_;                         // by group, known from the first compute on
    std::uint64_t taken_ = 0;                        // of the session's budget
    std::vector<std::unique_ptr<LayerPool>> pools_;  // by group
    std::vector<bool> is_off_;                       // by group: its slots could not be allocated

    NodeGraph graph_;
    std::vector<abi::Tensor *> pending_;
    LayerPool *served_ = nullptr;     // whose matmuls are pending; nobody else's since
    std::deque<abi::Tensor> clones_;  // addresses stay
    Routing routing_;
};

}  // namespace slotpool
