// The C interface over whole traces: one call replays all events of a group, through the pool or through the offline optimum.
#include "door/link_replay.h"
#include "door/pool_door.h"
#include "policy/belady.h"

using namespace slotpool;

namespace {

// marks of an event, as in slotpool.h
bool is_passing(const slotpool_events &events, std::size_t event) {
    return events.marks != nullptr && (events.marks[event] & SLOTPOOL_EVENT_PASSES) != 0;
}

slotpool_replayed &phase_of(const slotpool_events &events, std::size_t event, slotpool_replayed *out) {
    return out[events.marks != nullptr && (events.marks[event] & SLOTPOOL_EVENT_IS_PROMPT) != 0 ? 1 : 0];
}

bool ask(slotpool_pool &handle, const slotpool_events &events, std::size_t event, int admission) {
    const std::int32_t *ids = events.ids + events.first[event];
    const auto n_ids = static_cast<std::size_t>(events.first[event + 1] - events.first[event]);
    if (admission == SLOTPOOL_ADMIT_NONE) return handle.pool.look_up(ids, n_ids, handle.lookups);
    if (is_passing(events, event)) return handle.pool.pass(ids, n_ids, handle.lookups);
    return handle.pool.event(ids, n_ids, handle.lookups, admission == SLOTPOOL_ADMIT_WANTED);
}

int count(slotpool_pool &handle, slotpool_replayed &counts) {
    int n_hits = 0;
    for (const Lookup &lookup : handle.lookups) {
        if (lookup.is_hit) n_hits++;
        if (lookup.is_hit || lookup.slot == kNone) continue;
        handle.pool.publish(lookup.slot);
        counts.admitted++;
    }
    counts.events++;
    counts.lookups += static_cast<std::int64_t>(handle.lookups.size());
    counts.hits += n_hits;
    return n_hits;
}

bool are_in_range(const slotpool_events &events, int n_expert) {
    for (std::int64_t row = 0; row < events.first[events.n_events]; row++) {
        if (events.ids[row] < 0 || events.ids[row] >= n_expert) return false;
    }
    return true;
}

}  // namespace

int slotpool_pool_replay(slotpool_pool *pool, const slotpool_events *events, int admission, slotpool_replayed *out, int32_t *hits) {
    out[0] = out[1] = {};
    pool->is_fresh = false;
    for (std::size_t event = 0; event < events->n_events; event++) {
        if (!ask(*pool, *events, event, admission)) return -1;
        const int n_hits = count(*pool, phase_of(*events, event, out));
        if (hits != nullptr) hits[event] = n_hits;
    }
    return 0;
}

int slotpool_pool_replay_over_link(slotpool_pool *pool, const slotpool_events *events, const slotpool_link *link, slotpool_replayed *out,
                                   int32_t *hits) {
    out[0] = out[1] = {};
    pool->is_fresh = false;
    LinkReplay replay(*pool, *link);
    for (std::size_t event = 0; event < events->n_events; event++) {
        slotpool_replayed &counts = phase_of(*events, event, out);
        const std::int64_t before = counts.hits;
        if (is_passing(*events, event)) {
            if (!ask(*pool, *events, event, SLOTPOOL_ADMIT_ALL)) return -1;
            count(*pool, counts);
        } else if (!replay.event(events->ids + events->first[event], static_cast<std::size_t>(events->first[event + 1] - events->first[event]),
                                 counts)) {
            return -1;
        }
        if (hits != nullptr) hits[event] = static_cast<std::int32_t>(counts.hits - before);
    }
    return 0;
}

int slotpool_belady(int n_expert, int n_slots, const slotpool_events *events, int may_refuse, slotpool_replayed *out, int32_t *hits) {
    out[0] = out[1] = {};
    if (n_slots < 1 || n_expert < 1 || !are_in_range(*events, n_expert)) return -1;
    std::vector<std::uint8_t> passing(events->n_events);
    for (std::size_t event = 0; event < passing.size(); event++) passing[event] = is_passing(*events, event) ? 1 : 0;
    Belady belady({events->ids, events->first, passing.data(), events->n_events}, n_expert, n_slots, may_refuse != 0);
    for (std::size_t event = 0; event < events->n_events; event++) {
        const Belady::Found found = belady.step();
        slotpool_replayed &counts = phase_of(*events, event, out);
        counts.events++;
        counts.lookups += found.lookups;
        counts.hits += found.hits;
        if (hits != nullptr) hits[event] = found.hits;
    }
    return 0;
}
