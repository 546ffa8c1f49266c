// Expert matmuls of pooled tensors on any device: hits are computed there from slots, misses are copied into slots first or computed by
// the CPU from where the host has them, both at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/device_graph.h"
#include "dispatch/device_pools.h"
#include "dispatch/dispatch.h"
#include "dispatch/expert_chain.h"
#include "dispatch/expert_stream.h"
#include "dispatch/host_ffn.h"
#include "dispatch/host_store.h"
#include "dispatch/miss_plan.h"
#include "transfer/device_copies.h"
#include "transfer/uploader.h"

namespace slotpool {

class DeviceDispatch final : public Dispatch {
   public:
    DeviceDispatch(const Engine &engine, Context &context);
    ~DeviceDispatch() override;
    DeviceDispatch(const DeviceDispatch &) = delete;
    DeviceDispatch &operator=(const DeviceDispatch &) = delete;

    bool is_ready() const { return backend_ != nullptr && host_.backend() != nullptr; }
    abi::Status compute(abi::Graph *graph) override;
    void set_n_threads(int n_threads) override;
    void set_abort_callback(abi::AbortCallback callback, void *data) override;
    int damage(std::size_t group, Damage damage) override { return pools_->damage(group, damage); }

   private:
    // The event that the host serves as a whole: gate, up and down may come one by one.
    struct HostEvent {
        const HostSlabs *slabs = nullptr;  // compared, never followed
        std::uint64_t ubatch = 0;
        Routing routing{};
        std::vector<std::size_t> served{};  // tensors
    };
    bool begins_on_host(const HostSlabs &slabs, const std::vector<std::size_t> &indices);
    abi::Status compute_nodes(abi::Graph *graph);
    abi::Status serve(ExpertChain chain);
    bool is_pruned_and_too_large(const DevicePool &pool) const;
    bool is_served_by(const DevicePool &pool, const StoredTensor &stored) const;
    abi::Status serve_pooled(const ExpertChain &chain, DevicePool &pool, HostSlabs &slabs);
    bool does_pass(const ExpertChain &chain, const DevicePool *pool) const;
    abi::Status serve_passing(const ExpertChain &chain, DevicePool *pool, HostSlabs &slabs);
    abi::Status start_passing(const ExpertChain &chain, DevicePool *pool, const HostSlabs &slabs);
    abi::Status serve_on_host(const ExpertChain &chain, HostSlabs &slabs, bool is_passing);
    void count_on_host(const StoredTensor &stored);
    abi::Status compute_rows(const ExpertChain &chain, DevicePool *pool, HostSlabs &slabs, const EventRows &host_rows);
    abi::Status compute_on_host(const ExpertChain &chain, HostSlabs &slabs, const EventRows &rows, std::uint64_t &ns);
    abi::Status start_device(const ExpertChain &chain, DevicePool &pool);
    void upload_results(const ExpertChain &chain, const EventRows &rows);
    abi::Status add(const abi::Tensor &node);
    abi::Status flush();
    abi::Status fail(const std::string &error);
    abi::Status fail_of_range(const StoredTensor &stored);

    void note_host_ns(const ExpertChain &chain, DevicePool &pool, std::uint64_t ns);
    bool has_room_for_ids(std::size_t bytes);
    abi::Tensor *slot_ids_on_device(const abi::Tensor &ids, const std::vector<std::int32_t> &slot_ids);

    const Engine engine_;
    const abi::Api &api_;
    Context &context_;
    std::unique_ptr<Uploader> uploader_;  // first: where no thread can be started, there is nothing to give back yet
    abi::Backend *backend_;
    HostFfn host_;
    DeviceGraph graph_;
    DeviceCopies copies_;
    HostStore store_;  // outlives the pools, which read from it
    std::unique_ptr<ExpertStream> stream_;
    std::unique_ptr<DevicePools> pools_;
    MissPlanner misses_;

    abi::Buffer *ids_buffer_ = nullptr;
    abi::Tensor ids_{};
    Routing routing_;
    EventRows all_rows_;
    HostEvent host_event_;
};

}  // namespace slotpool
