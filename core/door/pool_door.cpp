// The C interface over the slot table alone: simulator, benchmarks and property tests come in here.
#include "door/pool_door.h"

using namespace slotpool;

namespace {

constexpr int kMaxExperts = 1 << 20;

bool has_expert(const slotpool_pool *handle, int expert) { return expert >= 0 && expert < handle->pool.n_expert(); }

bool is_filling(const slotpool_pool *handle, int slot) { return slot >= 0 && slot < handle->pool.n_slots() && handle->pool.is_filling(slot); }

using Ask = bool (*)(slotpool_pool &, const std::int32_t *, std::size_t);

bool admit_all(slotpool_pool &handle, const std::int32_t *ids, std::size_t n_ids) { return handle.pool.event(ids, n_ids, handle.lookups); }

bool admit_wanted(slotpool_pool &handle, const std::int32_t *ids, std::size_t n_ids) { return handle.pool.event(ids, n_ids, handle.lookups, true); }

bool pass(slotpool_pool &handle, const std::int32_t *ids, std::size_t n_ids) { return handle.pool.pass(ids, n_ids, handle.lookups); }

bool look_up(slotpool_pool &handle, const std::int32_t *ids, std::size_t n_ids) { return handle.pool.look_up(ids, n_ids, handle.lookups); }

bool run_event(slotpool_pool &handle, Ask ask, const std::int32_t *ids, std::size_t n_ids, bool publish) {
    handle.is_fresh = false;
    if (!ask(handle, ids, n_ids)) return false;
    for (const Lookup &lookup : handle.lookups) {
        if (publish && !lookup.is_hit && lookup.slot != kNone) handle.pool.publish(lookup.slot);
    }
    return true;
}

slotpool_lookup copied(const Lookup &from) { return {from.expert, from.slot, from.evicted, from.n_rows, from.is_hit ? 1 : 0}; }

int run_and_copy(slotpool_pool &handle, Ask ask, const std::int32_t *ids, std::size_t n_ids, bool publish, slotpool_lookup *out, int capacity) {
    if (!run_event(handle, ask, ids, n_ids, publish)) return -1;
    for (std::size_t i = 0; i < handle.lookups.size() && static_cast<int>(i) < capacity; i++) out[i] = copied(handle.lookups[i]);
    return static_cast<int>(handle.lookups.size());
}

bool read_expected(const slotpool_pool &handle, const std::int32_t *experts, const double *shares, std::size_t n, std::vector<Expected> &out) {
    std::vector<bool> is_known(static_cast<std::size_t>(handle.pool.n_expert()), false);
    for (std::size_t i = 0; i < n; i++) {
        if (!has_expert(&handle, experts[i]) || is_known[static_cast<std::size_t>(experts[i])] || !(shares[i] >= 0.0 && shares[i] <= 1.0))
            return false;
        is_known[static_cast<std::size_t>(experts[i])] = true;
        out.push_back({experts[i], shares[i]});
    }
    return true;
}

}  // namespace

slotpool_pool *slotpool_pool_new(int n_expert, int n_slots, const char *policy, double decay) {
    if (n_slots < 1 || n_slots > n_expert || n_expert > kMaxExperts || !(decay > 0.0 && decay <= 1.0)) return nullptr;
    auto made = make_policy(policy, decay, n_expert, n_slots);
    if (!made) return nullptr;
    return new slotpool_pool{Pool(n_expert, n_slots, std::move(made)), {}};
}

void slotpool_pool_free(slotpool_pool *pool) { delete pool; }

int slotpool_pool_warm(slotpool_pool *pool, const int32_t *experts, const double *shares, size_t n, int n_kept, int publish, slotpool_lookup *out,
                       int capacity) {
    std::vector<Expected> hottest;
    if (!pool->is_fresh || !read_expected(*pool, experts, shares, n, hottest)) return -1;
    pool->is_fresh = false;
    const std::vector<Lookup> warmed = pool->pool.warm(hottest, n_kept);
    for (std::size_t i = 0; i < warmed.size() && static_cast<int>(i) < capacity; i++) out[i] = copied(warmed[i]);
    for (const Lookup &lookup : warmed) {
        if (publish != 0) pool->pool.publish(lookup.slot);
    }
    return static_cast<int>(warmed.size());
}

int slotpool_pool_event(slotpool_pool *pool, const int32_t *ids, size_t n_ids, int publish, slotpool_lookup *out, int capacity) {
    return run_and_copy(*pool, &admit_all, ids, n_ids, publish != 0, out, capacity);
}

int slotpool_pool_event_may_refuse(slotpool_pool *pool, const int32_t *ids, size_t n_ids, int publish, slotpool_lookup *out, int capacity) {
    return run_and_copy(*pool, &admit_wanted, ids, n_ids, publish != 0, out, capacity);
}

int slotpool_pool_pass(slotpool_pool *pool, const int32_t *ids, size_t n_ids, int publish, slotpool_lookup *out, int capacity) {
    const int n_found = run_and_copy(*pool, &pass, ids, n_ids, publish != 0, out, capacity);
    if (n_found >= 0) pool->lookups.clear();  // what passes is not admitted afterwards
    return n_found;
}

int slotpool_pool_look_up(slotpool_pool *pool, const int32_t *ids, size_t n_ids, slotpool_lookup *out, int capacity) {
    return run_and_copy(*pool, &look_up, ids, n_ids, false, out, capacity);
}

int slotpool_pool_rank(slotpool_pool *pool, int32_t *experts, int capacity) {
    const std::vector<Lookup *> &ranked = pool->pool.rank(pool->lookups);
    for (std::size_t i = 0; i < ranked.size() && static_cast<int>(i) < capacity; i++) experts[i] = ranked[i]->expert;
    return static_cast<int>(ranked.size());
}

int slotpool_pool_admit(slotpool_pool *pool, int expert, int may_refuse, int publish, slotpool_lookup *out) {
    for (Lookup &lookup : pool->lookups) {
        if (lookup.expert != expert || lookup.is_hit || !pool->pool.admit(lookup, may_refuse != 0)) continue;
        if (publish != 0) pool->pool.publish(lookup.slot);
        *out = copied(lookup);
        return 1;
    }
    return 0;
}

int slotpool_pool_find(const slotpool_pool *pool, int expert) { return has_expert(pool, expert) ? pool->pool.find(expert) : kNone; }

void slotpool_pool_publish(slotpool_pool *pool, int slot) {
    if (is_filling(pool, slot)) pool->pool.publish(slot);
}

void slotpool_pool_abandon(slotpool_pool *pool, int slot) {
    if (is_filling(pool, slot)) pool->pool.abandon(slot);
}

int slotpool_pool_evict(slotpool_pool *pool, int expert) { return has_expert(pool, expert) && pool->pool.evict(expert) ? 1 : 0; }

int slotpool_pool_pin(slotpool_pool *pool, int expert) { return has_expert(pool, expert) && pool->pool.pin(expert) ? 1 : 0; }

void slotpool_pool_unpin(slotpool_pool *pool, int expert) {
    if (has_expert(pool, expert)) pool->pool.unpin(expert);
}
