// Damage to a slot table on purpose: the tests and tools that must find it need it.
#pragma once

#include <vector>

#include "dispatch/dispatch.h"
#include "pool/pool.h"

namespace slotpool {

inline std::vector<int> used_slots(const Pool &pool) {
    std::vector<int> used;
    for (int slot = 0; slot < pool.n_slots(); slot++) {
        if (pool.expert_in(slot) != kNone) used.push_back(slot);
    }
    return used;
}

// The slots whose bytes a damage of the other kinds changes: all in use, or the first of them.
inline std::vector<int> slots_to_change(const Pool &pool, Damage damage) {
    std::vector<int> used = used_slots(pool);
    if (damage == Damage::changed_bit && !used.empty()) used.resize(1);
    return used;
}

// Exchanges the experts of slots in use, two and two. Returns the number of slots touched.
inline int swap_used_slots(Pool &pool) {
    const std::vector<int> used = used_slots(pool);
    for (std::size_t i = 0; i + 1 < used.size(); i += 2) pool.swap_slots(used[i], used[i + 1]);
    return static_cast<int>(used.size()) / 2 * 2;
}

}  // namespace slotpool
