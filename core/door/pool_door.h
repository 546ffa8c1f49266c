// What stands behind a slotpool_pool: a slot table, and the lookups of its last event.
#pragma once

#include <vector>

#include "pool/pool.h"
#include "slotpool.h"

struct slotpool_pool {
    slotpool::Pool pool;
    std::vector<slotpool::Lookup> lookups;
    bool is_fresh = true;  // has seen no event
};
