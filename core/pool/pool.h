// The slot table: which expert is in which slot. Knows no ggml, no clock, no threads and no bytes.
//
// Invariants: an expert is in at most one slot and a slot holds at most one expert; a slot that is being filled is not a
// hit and not a victim; no expert of an event is evicted by that event; an expert that is pinned or kept is never evicted.
//
// The order within an event is part of the specification (slotpool.policies.reference is its model): every distinct
// expert is looked up against the table as the event found it, in order of first appearance; the policy hears of all of
// them, then of the hits; then misses are admitted in order of appearance, into the lowest free slot first. A caller that
// can serve misses without a slot takes the two halves apart: look_up(), then admit() for the misses of its choice.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/policy.h"

namespace slotpool {

// One distinct expert of an event.
struct Lookup {
    std::int32_t expert;
    std::int32_t slot;     // kNone: no slot could be taken, the rows stay misses
    std::int32_t evicted;  // expert that left the slot, or kNone
    std::int32_t n_rows;   // rows of the event that ask for this expert
    bool is_hit;
};

// What is expected of an expert before the first event: `share` of the events will ask for it.
struct Expected {
    std::int32_t expert;
    double share;
};

class Pool final : public PoolView {
   public:
    // n_slots in [0, n_expert]. The policy must be made for the same numbers.
    Pool(int n_expert, int n_slots, std::unique_ptr<Policy> policy);

    int n_expert() const { return n_expert_; }
    int n_slots() const { return static_cast<int>(slots_.size()); }

    // Before the first event: the policy takes `hottest`, the hottest first, as if it had seen them, and as many of them as there are slots get
    // one, to be filled until publish(). The first n_kept are never evicted from the moment they have a slot, now or later.
    // Returns the lookups of those with a slot, the hottest first. Each expert is in [0, n_expert), and there once.
    std::vector<Lookup> warm(const std::vector<Expected> &hottest, int n_kept);
    // Slot that holds the expert's bytes, or kNone. Touches neither recency nor counts.
    int find(int expert) const;

    // Looks up the experts of one event and takes slots for the misses; those slots are being filled until publish().
    // `ids` has n_ids rows. With `may_refuse` (misses can be served without a slot) a policy that is choosy has the misses ranked, and
    // may refuse each. Returns false, and changes nothing, when an id is outside [0, n_expert).
    bool event(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out, bool may_refuse = false);
    // The first half of event(): who is a hit and who a miss; recency and policy are told, no slot is taken.
    bool look_up(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out);
    // The misses of look_up() without a slot, the most wanted first: by the policy's worth, of equals the one with more rows, then
    // the first to appear. Valid until the next call of look_up(), event(), pass() or rank(), as long as `lookups` is not resized.
    const std::vector<Lookup *> &rank(std::vector<Lookup> &lookups);
    // Takes a slot for a miss of look_up(), until the next event. With `may_refuse` the policy may find that the victim is worth at
    // least as much; it is not asked while a slot is free. False, and nothing changes: refused, no slot can be taken, or the expert
    // has one already (filled or on its way).
    bool admit(Lookup &lookup, bool may_refuse);
    // An event too large for the slots: it evicts nobody. While slots are free it is an event like any other, and its misses with
    // the most rows take them (of equals the first to appear); with no slot free nothing is touched, recency and policy included.
    bool pass(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out);

    void publish(int slot);  // the slot's bytes are there
    void abandon(int slot);  // the slot's bytes will not come: it is free again
    bool evict(int expert);  // false: not resident, pinned, kept, or being filled
    bool pin(int expert);    // false: not resident
    void unpin(int expert);
    void swap_slots(int a, int b);  // for tests that need a wrong map: the experts of two slots are exchanged

    bool has_free_slot() const { return !free_.empty(); }
    bool is_filling(int slot) const { return slots_[static_cast<std::size_t>(slot)].is_filling; }
    bool is_victim(int slot) const override;
    int expert_in(int slot) const override { return slots_[static_cast<std::size_t>(slot)].expert; }

   private:
    struct Slot {
        std::int32_t expert = kNone;
        bool is_filling = false;
        bool is_pinned = false;
        std::uint64_t used_in = 0;  // the last event that used the slot
    };
    struct Expert {
        std::int32_t slot = kNone;
        std::int32_t filled = kNone;  // the same once its bytes are there: what is looked up, in one step
        std::int32_t index = 0;       // in the event's list of distinct experts, valid when seen_in is the current event
        bool is_kept = false;
        std::uint64_t seen_in = 0;
    };

    Slot &slot(int index) { return slots_[static_cast<std::size_t>(index)]; }
    Expert &expert(int index) { return experts_[static_cast<std::size_t>(index)]; }
    bool are_in_range(const std::int32_t *ids, std::size_t n_ids) const;
    void collect(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out);
    void tell(const std::vector<Lookup> &lookups);
    void fill_free_slots(std::vector<Lookup> &lookups);
    void list_misses(std::vector<Lookup> &lookups);
    int take_slot(Lookup &lookup, bool may_refuse);
    void release(int index);

    int n_expert_;
    std::unique_ptr<Policy> policy_;
    std::vector<Slot> slots_;
    std::vector<Expert> experts_;
    std::vector<std::int32_t> free_;    // lowest slot last
    std::vector<Lookup *> candidates_;  // scratch
    std::uint64_t event_ = 0;
};

}  // namespace slotpool
