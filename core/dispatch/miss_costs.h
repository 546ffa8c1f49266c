// What a miss costs here: copied to the device, or computed by the CPU where its weights lie. Measured as it happens, in nanoseconds, and
// the decision that follows from it.
#pragma once

#include <algorithm>
#include <cstddef>

namespace slotpool {

// A mean that forgets: new measurements count a tenth. The first few are an ordinary mean.
class RunningMean {
   public:
    void add(double value) {
        n_ = std::min(n_ + 1.0, kMemory);
        mean_ += (value - mean_) / n_;
    }
    bool is_known() const { return n_ > 0.0; }
    double get() const { return mean_; }

   private:
    static constexpr double kMemory = 10.0;
    double n_ = 0.0;
    double mean_ = 0.0;
};

struct MissCosts {
    double copy_ns = 0.0;    // of one expert's slabs; 0: not known yet
    double host_ns = 0.0;    // of one expert computed by the CPU; 0: not known yet
    double device_ns = 0.0;  // of an event that has nothing but hits
    double fetch_ns = 0.0;   // of an event that the CPU has a part in: its inputs from the device, its rows back
};

// How many of n misses to copy: copies run beside the CPU, which serves the others, and what the device computes comes after its copies, or
// beside the CPU where it waits for none; then what the CPU's part costs before and behind. Of equals the most copies: what is copied is
// a hit next time. While a cost is unknown, none.
inline int n_to_copy(const MissCosts &costs, int n_misses) {
    if (costs.copy_ns <= 0.0 || costs.host_ns <= 0.0) return 0;
    const auto event_ns = [&](int n) {
        const double host_ns = (n_misses - n) * costs.host_ns;
        if (n == n_misses) return costs.device_ns + n * costs.copy_ns;
        if (n == 0) return costs.fetch_ns + std::max(costs.device_ns, host_ns);
        return costs.fetch_ns + costs.device_ns + std::max(n * costs.copy_ns, host_ns);
    };
    int best = 0;
    for (int n = 1; n <= n_misses; n++) {
        if (event_ns(n) <= event_ns(best)) best = n;
    }
    return best;
}

// How many experts the link can copy for later while the CPU serves n misses; one where nothing is known. More would wait for the link in
// slots that serve nobody meanwhile, and be old news when they come.
inline int n_in_time(const MissCosts &costs, int n_misses) {
    if (costs.copy_ns <= 0.0 || costs.host_ns <= 0.0) return 1;
    return std::max(1, static_cast<int>(std::min(1e6, n_misses * costs.host_ns / costs.copy_ns)));
}

}  // namespace slotpool
