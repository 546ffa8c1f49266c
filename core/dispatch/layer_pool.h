// The pool of one group in one context: slot table, slot bytes, counters, and the event it is serving.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dispatch/routing.h"
#include "dispatch/warm_set.h"
#include "pool/pool.h"
#include "store/session.h"
#include "trace/ring.h"
#include "transfer/slab_source.h"
#include "transfer/slot_memory.h"

namespace slotpool {

class LayerPool {
   public:
    // nullptr when the slots cannot be allocated; `error` says why. `source` outlives the pool.
    static std::unique_ptr<LayerPool> make(const abi::Api &api, abi::Device *device, Session &session, int group, int n_slots, SlabSource &source,
                                           GroupCounts &counts, std::string &error);
    ~LayerPool();

    // Before the first event: slots begin with these experts. Begins to bring them; the first event waits for them.
    void warm(const WarmSet &set);
    // From here on it counts who is asked for.
    void count_heat(std::shared_ptr<Heat> heat) { heat_ = std::move(heat); }

    // True when `stored` is one of this pool's tensors, not another model's at the same address, and none of them is gone.
    bool holds(const StoredTensor &stored) const;

    // Serves the event that `stored` asks for. Gate, up and down of a layer share one event: it begins with the first of
    // them, and counts once. An event that passes (`is_passing`) is too large for the slots: it uses
    // what is in them, fills free ones and evicts nobody.
    // Returns false on an expert id outside the tensor; nothing is changed then.
    bool serve(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch, Phase phase, bool is_passing, std::string &error);
    // True when the next serve() with these arguments begins a new event.
    bool begins_event(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch) const;

    // ---- the event that is being served ----
    int index_of(const StoredTensor &stored) const;
    // True when every expert of the event is in a slot, its slab of the tensor complete.
    bool is_in_slots(std::size_t index);
    // True when a stride finds these slabs, so that one call of the kernel serves all. Slabs that stay are brought there, one an
    // event: a call per expert costs more than moving it once.
    bool is_at_stride(std::size_t index);
    bool has_a_row_each() const { return lookups_.size() == event_.ids.size(); }
    // The weight with its experts in slots, and the slot of every row of the event: I32 [n_used, n_tokens].
    abi::Tensor *slot_tensor(std::size_t index) { return &slot_tensors_[index]; }
    const std::vector<std::int32_t> &slot_ids() const { return slot_ids_; }

    // The distinct experts of the event; those without a slot pass through.
    const std::vector<Lookup> &lookups() const { return lookups_; }
    bool is_arriving(std::size_t index, std::size_t lookup) const;
    // Waits for the slab of a lookup that has a slot. False and one line in `error` when it will not come.
    bool wait(std::size_t index, std::size_t lookup, std::string &error);
    const std::uint8_t *slab(std::size_t index, std::size_t lookup) const { return memory_->slab(index, lookups_[lookup].slot); }
    const std::vector<std::int32_t> &passing() const { return passing_; }  // experts without a slot, ascending
    std::uint64_t event_number() const { return event_number_; }
    // The tensors of the group from `index` on, in the order in which the graph asked for them last time.
    std::vector<std::size_t> order_from(std::size_t index) const;
    void count_compute(std::uint64_t ns) {
        PhaseCounts &counts = counts_.phase[static_cast<int>(phase_)];
        (has_all_slots_ ? counts.hit_compute_ns : counts.miss_compute_ns).add(ns);
    }
    void count_wait(std::uint64_t ns) { counts_.phase[static_cast<int>(phase_)].wait_ns.add(ns); }

    // Publishes what has arrived, gives up what did not: the event is over.
    void finish_event();
    // The same of what the slots began with.
    void finish_warm();
    // The event failed: the next one begins anew.
    void forget_event();

    Pool &pool() { return pool_; }
    SlotMemory &memory() { return *memory_; }
    const StoredTensors &tensors() const { return tensors_; }

   private:
    LayerPool(const StoredTensors &tensors, const PlannedGroup &group, int n_slots, const Plan &plan, SlabSource &source,
              std::unique_ptr<SlotMemory> memory, GroupCounts &counts);
    bool begin_event(const Routing &routing, bool is_passing);
    void make_room(std::size_t n_ids);
    void fetch_misses();
    Fetch &fetch(std::size_t index, std::size_t lookup) { return *fetches_[static_cast<std::size_t>(fetch_of_[lookup]) * tensors_.size() + index]; }
    const Fetch &fetch(std::size_t index, std::size_t lookup) const {
        return *fetches_[static_cast<std::size_t>(fetch_of_[lookup]) * tensors_.size() + index];
    }
    void map_rows();
    void count();
    Fetch &warm_fetch(std::size_t index, std::size_t lookup) { return *warm_fetches_[lookup * tensors_.size() + index]; }

    StoredTensors tensors_;
    std::vector<std::uint64_t> serials_;
    std::vector<abi::Tensor> slot_tensors_;
    SlabSource &source_;
    std::unique_ptr<SlotMemory> memory_;
    Pool pool_;
    GroupCounts &counts_;
    std::shared_ptr<Heat> heat_;                        // nullptr: not counted here
    std::vector<Lookup> warm_;                          // what the slots began with, on its way
    std::vector<std::unique_ptr<Fetch>> warm_fetches_;  // by lookup and tensor; addresses stay while reads run
    std::shared_ptr<trace::Ring> trace_;                // nullptr: routing is not recorded
    std::size_t slab_bytes_ = 0;                        // of all tensors of the group

    Routing event_;
    std::vector<bool> event_served_;  // by tensor: has it been handed out for this event
    std::uint64_t event_ubatch_ = 0;
    std::uint64_t event_number_ = 0;
    std::uint64_t update_ns_ = 0;  // of the event: bookkeeping, and copies from host memory
    std::uint64_t copy_ns_ = 0;
    Phase phase_ = Phase::generation;
    bool has_all_slots_ = false;
    std::vector<Lookup> lookups_;
    std::vector<std::int32_t> fetch_of_;           // by lookup: its number among the event's misses that got a slot, or kNone
    std::vector<std::unique_ptr<Fetch>> fetches_;  // by that number and tensor; addresses stay while reads run
    std::size_t n_fetched_ = 0;                    // misses of the event that are on their way or there, not yet published
    std::vector<std::uint32_t> n_hits_;            // by slot, since it was filled
    std::uint32_t n_to_settle_;                    // so many hits, and a slab moves to where one call serves all
    std::vector<std::int32_t> passing_;
    std::vector<std::int32_t> slot_ids_;
    std::vector<std::int32_t> slot_of_expert_;  // scratch, valid for the event's experts
    std::vector<std::size_t> order_;            // of the tensors, as the graph asked last time
    std::size_t n_asked_ = 0;                   // tensors handed out in this event
};

}  // namespace slotpool
