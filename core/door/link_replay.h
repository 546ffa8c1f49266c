// Events of a pool whose slots are filled over a link, while the CPU serves misses: what MissPlanner and Uploader do, without either.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "door/pool_door.h"
#include "slotpool.h"

namespace slotpool {

// At most as many slots begin to be filled as the link has brought experts, and what begins is there some events later.
class LinkReplay {
   public:
    LinkReplay(slotpool_pool &handle, const slotpool_link &link) : handle_(handle), link_(link) {}

    bool event(const std::int32_t *ids, std::size_t n_ids, slotpool_replayed &counts) {
        for (; !on_the_way_.empty() && on_the_way_.front().at <= event_; on_the_way_.pop_front()) handle_.pool.publish(on_the_way_.front().slot);
        event_++;
        if (!handle_.pool.look_up(ids, n_ids, handle_.lookups)) return false;
        const auto is_miss = [](const Lookup &lookup) { return !lookup.is_hit; };
        const auto n_misses = static_cast<std::size_t>(std::count_if(handle_.lookups.begin(), handle_.lookups.end(), is_miss));
        admit(n_misses, counts);
        counts.events++;
        counts.lookups += static_cast<std::int64_t>(handle_.lookups.size());
        counts.hits += static_cast<std::int64_t>(handle_.lookups.size() - n_misses);
        return true;
    }

   private:
    struct OnTheWay {
        std::size_t at;  // the first event that finds it
        std::int32_t slot;
    };

    void admit(std::size_t n_misses, slotpool_replayed &counts) {
        std::int32_t n_left = link_.n_copied[std::min(n_misses, link_.n_counts - 1)];
        const double most = (static_cast<double>(n_misses) - n_left) * link_.experts_per_miss;
        brought_ = std::min(brought_ + link_.experts_per_event, std::max(1.0, std::floor(most)));
        if (n_misses == 0) return;
        for (Lookup *lookup : handle_.pool.rank(handle_.lookups)) {
            if ((n_left > 0 || handle_.pool.has_free_slot()) && handle_.pool.admit(*lookup, false)) {
                n_left--;
                handle_.pool.publish(lookup->slot);
            } else if (brought_ >= 1.0 && handle_.pool.admit(*lookup, true)) {
                brought_ -= 1.0;
                counts.later++;
                on_the_way_.push_back({event_ + link_.n_events_on_the_way, lookup->slot});
            } else {
                continue;
            }
            counts.admitted++;
        }
    }

    slotpool_pool &handle_;
    const slotpool_link &link_;
    std::deque<OnTheWay> on_the_way_;
    std::size_t event_ = 0;
    double brought_ = 1.0;  // and not taken yet
};

}  // namespace slotpool
