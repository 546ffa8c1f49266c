// The pool of one group in one context: slot table, slot bytes, counters, and the event it is serving.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pool/pool.h"
#include "store/session.h"
#include "transfer/slot_memory.h"

namespace slotpool {

// The routing of one (ubatch, group), as rows in (token, k) order.
struct Routing {
    std::vector<std::int32_t> ids;
    std::int64_t n_used = 0;  // k
    std::int64_t n_tokens = 0;

    // Copies the ids out of a strided view in host memory; the view itself is never written to.
    void read(const abi::Tensor &view);
    bool operator==(const Routing &other) const { return n_used == other.n_used && n_tokens == other.n_tokens && ids == other.ids; }
};

class LayerPool {
   public:
    // nullptr when the slots cannot be allocated; `error` says why.
    static std::unique_ptr<LayerPool> make(const abi::Api &api, abi::Device *device, const Session &session, int group, GroupCounts &counts,
                                           std::string &error);

    // True when `stored` is one of this pool's tensors, not another model's at the same address, and none of them is gone.
    bool holds(const StoredTensor &stored) const;

    // Serves the event that `stored` asks for. Gate, up and down of a layer share one event: it begins with the first of
    // them, and counts once. Returns false on an expert id outside the tensor; nothing is changed then.
    bool serve(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch, Phase phase, std::string &error);
    // True when the next serve() with these arguments begins a new event.
    bool begins_event(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch) const;

    // False when an expert of the event got no slot: then all its rows are computed where the weights lie.
    bool is_in_slots() const { return is_in_slots_; }
    // The weight with its experts in slots, and the slot of every row of the event: I32 [n_used, n_tokens].
    abi::Tensor *slot_tensor(const StoredTensor &stored);
    const std::vector<std::int32_t> &slot_ids() const { return slot_ids_; }

    Pool &pool() { return pool_; }
    SlotMemory &memory() { return *memory_; }

   private:
    LayerPool(const StoredTensors &tensors, const PlannedGroup &group, const Plan &plan, std::unique_ptr<SlotMemory> memory, GroupCounts &counts);
    int index_of(const StoredTensor &stored) const;
    void fill_misses();
    void map_rows();
    void count(Phase phase);

    StoredTensors tensors_;
    std::vector<std::uint64_t> serials_;
    std::vector<abi::Tensor> slot_tensors_;
    std::unique_ptr<SlotMemory> memory_;
    Pool pool_;
    GroupCounts &counts_;
    std::size_t slab_bytes_ = 0;  // of all tensors of the group

    Routing event_;
    std::vector<bool> event_served_;  // by tensor: has it been handed out for this event
    std::uint64_t event_ubatch_ = 0;
    bool is_in_slots_ = false;
    std::vector<Lookup> lookups_;
    std::vector<std::int32_t> slot_ids_;
    std::vector<std::int32_t> slot_of_expert_;  // scratch, valid for the event's experts
};

}  // namespace slotpool
