// The pool of one group on a device, in one context: slot table, slots, copies on their way into them, and the event it is serving.
//
// A miss of an event is copied into a slot before it is used, or served by the host; of the latter some are admitted: copied for later,
// in the background. A slot whose copy is not complete is no hit and no victim. Where the slabs come from is HostSlabs' affair.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/event_rows.h"
#include "dispatch/routing.h"
#include "dispatch/warm_set.h"
#include "pool/pool.h"
#include "stats/stats.h"
#include "store/session.h"
#include "transfer/device_slots.h"
#include "transfer/host_slabs.h"
#include "transfer/uploader.h"

namespace slotpool {

// How the misses of an event are served.
struct MissPlan {
    int n_copied = 0;        // so many are copied before use, the most wanted first
    int n_admitted = 0;      // of the others at most so many are copied for later, where the policy finds that it pays
    bool is_frozen = false;  // only into free slots
};

class DevicePool {
   public:
    // nullptr when the device has no room; `error` says why. `slabs` and `uploader` outlive the pool.
    static std::unique_ptr<DevicePool> make(const abi::Api &api, abi::Device *device, Session &session, int group, int n_slots, HostSlabs &slabs,
                                            Uploader &uploader, GroupCounts &counts, std::string &error);
    ~DevicePool();

    // Before the first event: slots begin with these experts. With `is_awaited` the first event waits for them, else they are copied for later.
    void warm(const WarmSet &set, bool is_awaited);

    bool holds(const StoredTensor &stored) const;
    int index_of(const StoredTensor &stored) const;
    const StoredTensors &tensors() const { return tensors_; }
    int n_slots() const { return pool_.n_slots(); }
    // What an event may ask for at most so that every expert of it can have a slot.
    int n_usable() const { return n_usable_; }
    int n_expert() const { return pool_.n_expert(); }
    // How many more experts may be on their way for later: so many that rows of the CPU still find slots that nobody writes, without waiting.
    // Where there is never so much room, one at a time.
    int room_for_later(std::int64_t n_used) const {
        return std::max(pool_.n_slots() - static_cast<int>(n_used), 1) - static_cast<int>(on_their_way_.size());
    }
    std::size_t slab_bytes() const { return slab_bytes_; }

    // True when the next matmul of `stored` with this routing begins a new event.
    bool begins_event(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch) const;
    // Looks the event up: what has arrived is published first; with `is_settled` everything is waited for. False on an expert id outside
    // the tensor: nothing is changed then.
    bool look_up(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch, bool is_settled, std::string &error);
    int n_misses() const { return n_misses_; }
    // Rows of the event's misses: the expert of each.
    const std::vector<std::int32_t> &missed_rows();
    // Takes slots for misses, whose slabs the host has begun to bring. False and one line in `error` when a slab will not come: the event must
    // be given up.
    bool serve(const MissPlan &plan, Phase phase, std::string &error);
    // Begins to copy what the event waits for, tensors in the order in which the layer wanted them last time; once an event. They hold the link:
    // whatever else the event needs of it comes before. False as above.
    bool begin_copies(std::string &error);
    // Begins to copy what was admitted for later, as soon as the host has it. False as above.
    bool copy_for_later(std::string &error);
    // The event failed: slots that it took are free again, unless their copy is on its way.
    void give_up_event();
    void mark_served(const StoredTensor &stored);

    // ---- an event that passes: too large for the slots, it evicts nobody ----
    // Its experts, hits by the slot they are in. Others have a slot only while some are free, which somebody fills until publish_passed(). Ids
    // are in range. Valid until the next call of it, or of look_up().
    const std::vector<Lookup> &pass(const Routing &routing, std::uint64_t ubatch, Phase phase, bool is_settled);
    void publish_passed();
    void abandon_passed();

    // ---- the event that is being served ----
    bool has_device_rows() const { return n_device_rows_ > 0; }
    bool waits_for_copies() const { return !copied_.empty(); }
    const EventRows &host_rows() const { return host_rows_; }
    // Waits for the copies of tensor `index` that this event uses.
    void wait(std::size_t index);
    // The slot of every row; rows of the host have slots that nobody copies into, and that no other row of their token has unless it is the
    // event's only one.
    const std::vector<std::int32_t> &slot_ids() const { return slot_ids_; }
    abi::Tensor *slot_tensor(std::size_t index) { return slots_->tensor(index); }

    // Waits for all copies and publishes them.
    void settle();
    PhaseCounts &phase_counts() { return counts_.phase[static_cast<int>(phase_)]; }  // of the event
    Pool &pool() { return pool_; }
    DeviceSlots &slots() { return *slots_; }

   private:
    enum class Use : char { nobody, other_tokens, this_token };

    DevicePool(const StoredTensors &tensors, const PlannedGroup &group, const Plan &plan, std::unique_ptr<DeviceSlots> slots, int n_slots,
               HostSlabs &slabs, Uploader &uploader, GroupCounts &counts);
    void copy_warm(const std::vector<Lookup> &warmed, bool is_awaited);
    void read_warm(const std::vector<Lookup> &warmed);
    void publish_arrived();
    Upload &upload(int slot, std::size_t index) { return uploads_[static_cast<std::size_t>(slot) * tensors_.size() + index]; }
    const Upload &upload(int slot, std::size_t index) const { return uploads_[static_cast<std::size_t>(slot) * tensors_.size() + index]; }
    bool has_arrived(int slot) const;
    bool is_warming(int slot) const { return std::find(warming_.begin(), warming_.end(), slot) != warming_.end(); }
    void take_slots(const MissPlan &plan);
    void begin_copy(int slot, std::size_t index, bool is_urgent);
    bool begin_copies_of_kept(std::string &error);
    bool copy_in_waves(std::string &error);
    bool copy_wave(const std::vector<int> &slots, std::string &error);
    bool map_rows(std::string &error);
    void map_host_rows();
    bool give_idle_slots(std::string &error);
    int idle_slot(std::string &error);
    int idle_slot(Use most) const;
    void count();

    StoredTensors tensors_;
    std::vector<std::uint64_t> serials_;
    std::unique_ptr<DeviceSlots> slots_;
    Pool pool_;
    HostSlabs &slabs_;
    Uploader &uploader_;
    GroupCounts &counts_;
    std::shared_ptr<Heat> heat_;
    int n_usable_;
    bool awaits_all_ = false;             // what the slots begin with is not all there, and the next event waits for it
    std::shared_ptr<trace::Ring> trace_;  // nullptr: routing is not recorded
    std::size_t slab_bytes_ = 0;          // of all tensors of the group
    std::deque<Upload> uploads_;          // by slot and tensor; addresses stay
    std::vector<int> on_their_way_;
    std::vector<int> warming_;    // of these, what the slots begin with: published together
    std::vector<bool> is_later_;  // by slot: its copy is for later

    Routing event_;
    std::vector<bool> event_served_;  // by tensor
    std::uint64_t event_ubatch_ = 0;
    Phase phase_ = Phase::generation;
    int n_misses_ = 0;
    std::vector<Lookup> lookups_;
    std::vector<std::int32_t> missed_rows_;
    std::vector<int> passed_;  // slots that an event which passes fills
    std::vector<int> copied_;  // slots that this event waits for
    bool has_begun_copies_ = false;
    std::vector<int> for_later_;  // slots that it took for later and nobody copies into yet
    int n_admitted_ = 0;
    std::vector<std::int32_t> slot_of_expert_;  // of the event's experts; kNone: the host's
    std::vector<std::int32_t> slot_ids_;
    std::vector<Use> used_by_;  // by slot, as the token sees it whose rows are being mapped
    EventRows host_rows_;
    std::size_t n_device_rows_ = 0;
    std::vector<std::size_t> order_;  // of the tensors, as the graph asked last
    std::size_t n_asked_ = 0;
};

}  // namespace slotpool
