// Expert matmuls of pooled tensors on any device: hits are computed there from slots, misses are copied into slots first or computed by
// the CPU from the store, both at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/device_allotment.h"
#include "dispatch/device_graph.h"
#include "dispatch/device_pool.h"
#include "dispatch/dispatch.h"
#include "dispatch/expert_chain.h"
#include "dispatch/host_ffn.h"
#include "dispatch/miss_costs.h"
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
    int damage(std::size_t group, Damage damage) override;

   private:
    abi::Status compute_nodes(abi::Graph *graph);
    abi::Status serve(ExpertChain chain);
    bool is_pruned_and_too_large(const DevicePool &pool) const;
    abi::Status serve_pooled(const ExpertChain &chain, DevicePool &pool);
    abi::Status compute_rows(const ExpertChain &chain, DevicePool *pool, const EventRows &host_rows);
    abi::Status start_device(const ExpertChain &chain, DevicePool &pool);
    void upload_results(const ExpertChain &chain, const EventRows &rows);
    abi::Status add(const abi::Tensor &node);
    abi::Status flush();
    abi::Status fail(const std::string &error);

    void note_host_ns(const ExpertChain &chain, DevicePool &pool, std::uint64_t ns);
    MissPlan plan_misses(const DevicePool &pool) const;
    DevicePool *device_pool(const StoredTensor &stored);
    void make_pools();
    bool is_warm_up_too_large(const std::string &name, const std::vector<int> &slots) const;
    std::string why_too_few(const PlannedGroup &group, int n_slots, const DeviceRoom &room) const;
    bool make_pool(std::size_t group, int n_slots, std::string &error);
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
    std::vector<std::unique_ptr<DevicePool>> pools_;  // by group
    bool has_pools_ = false;
    int page_device_ = -1;     // of the session's page
    std::uint64_t taken_ = 0;  // bytes of the device

    abi::Buffer *ids_buffer_ = nullptr;
    abi::Tensor ids_{};
    Routing routing_;
    EventRows all_rows_;
    RunningMean host_ns_per_byte_;
    RunningMean device_ns_per_event_;
    RunningMean fetch_ns_per_event_;
};

}  // namespace slotpool
