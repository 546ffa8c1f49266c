// The experts of a large ubatch on their way through a device, one layer after the other: those in slots are copied inside the device, the
// others once from the host, slabs that follow each other in one copy, beside the compute. The pool loses nobody by it.
//
// A layer's weights are then as llama.cpp's own path has them: whole tensors, every expert at its index. So calls keep ids, shapes and bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/device_graph.h"
#include "dispatch/device_pool.h"
#include "dispatch/routing.h"
#include "transfer/host_slabs.h"
#include "transfer/staging.h"
#include "transfer/uploader.h"

namespace slotpool {

// An event that passes. `pool` and `counts` are nullptr where nobody has slots, and nobody counts.
struct PassingEvent {
    HostSlabs &slabs;
    DevicePool *pool;
    GroupCounts *counts;
    const Routing &routing;  // in range
    std::uint64_t ubatch;
    Phase phase;
    bool is_settled;
};

class ExpertStream {
   public:
    // `uploader` outlives it.
    ExpertStream(const abi::Api &api, abi::Device *device, Uploader &uploader);
    ~ExpertStream();
    ExpertStream(const ExpertStream &) = delete;
    ExpertStream &operator=(const ExpertStream &) = delete;

    // Bytes of the device that make_room() would take for these layers.
    std::uint64_t room_bytes(const std::vector<StoredTensors> &layers) const { return Staging::bytes(api_, device_, layers); }
    // False and one line in `error` when the device has no such memory.
    bool make_room(const std::vector<StoredTensors> &layers, bool poison, std::string &error);
    bool has_room_for(const StoredTensors &layer) const { return staging_ != nullptr && staging_->has_room_for(layer); }

    // True when the next matmuls, of tensors `indices` of `slabs`, begin a new event.
    bool begins(const PassingEvent &event, const std::vector<std::size_t> &indices) const;
    void begin(const PassingEvent &event);
    // Begins to copy what the event wants of these tensors, in this order. False: the device refused a tensor.
    bool fetch(const std::vector<std::size_t> &indices, const HostSlabs &slabs);
    // Waits for the copies of tensor `index` and adds to `graph` those inside the device. The weight, for whoever computes behind them.
    abi::Tensor *arrived(std::size_t index, DevicePool *pool, DeviceGraph &graph);
    // The device is done with these tensors.
    void mark_served(const std::vector<std::size_t> &indices, DevicePool *pool);
    // Nothing is on its way any more, and the next matmul begins a new event. The device must compute nothing of it by now.
    void give_up(DevicePool *pool);

   private:
    struct Run {
        std::int32_t first;
        std::int32_t n;
    };
    struct Copy {
        std::size_t index;
        Upload upload;
    };
    void sort_experts(const PassingEvent &event);
    void add_run_of(std::int32_t expert);
    void count(const PassingEvent &event) const;
    void copy_inside(const abi::Tensor &from, std::size_t from_offset, const abi::Tensor &to, std::size_t to_offset, DeviceGraph &graph);
    bool can_copy_inside(const std::vector<StoredTensors> &layers) const;
    void wait_for_copies();

    const abi::Api &api_;
    abi::Device *device_;
    Uploader &uploader_;
    int op_cpy_;
    std::unique_ptr<Staging> staging_;
    bool uses_slots_ = false;

    // ---- the event ----
    const HostSlabs *slabs_ = nullptr;  // compared, never followed
    std::uint64_t ubatch_ = 0;
    Routing routing_;
    PhaseCounts *counts_ = nullptr;
    std::vector<bool> is_served_;          // by tensor
    std::vector<std::int32_t> slot_of_;    // by expert: kNone, or the slot that holds it
    std::vector<std::int32_t> residents_;  // experts in slots
    std::vector<std::int32_t> passing_;    // the others, in their order
    std::vector<Run> runs_;                // of them
    std::vector<Lookup> admitted_;         // those of them that take a free slot
    std::deque<Copy> copies_;              // addresses stay
    std::deque<abi::Tensor> parts_;        // of copies inside the device; addresses stay
};

}  // namespace slotpool
