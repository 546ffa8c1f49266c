// Time that is counted where it was spent, nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

#include "stats/stats.h"

namespace slotpool {

class Stopwatch {
   public:
    std::uint64_t ns() const { return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - begin_).count()); }
    void add_to(Count &count) const { count.add(ns()); }

   private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin_ = Clock::now();
};

}  // namespace slotpool
