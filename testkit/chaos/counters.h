// What a chaos device counts. The names are those that tests read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace chaos {

// clang-format off
// transfers: direction, whether the tensor lies in a buffer of weights, whether the call waited for the transfer
#define CHAOS_TRANSFERS(C, direction)                                          \
    C(direction##_other_async_n) C(direction##_other_async_bytes)              \
    C(direction##_other_blocking_n) C(direction##_other_blocking_bytes)        \
    C(direction##_weights_async_n) C(direction##_weights_async_bytes)          \
    C(direction##_weights_blocking_n) C(direction##_weights_blocking_bytes)

// copies stay inside the device; expert_bytes are those of the distinct experts of each call; weights_before_read: the most bytes of weights in
// one copy that a read found on the link
#define CHAOS_COUNTERS(C)                                                                                   \
    CHAOS_TRANSFERS(C, to_device)                                                                           \
    CHAOS_TRANSFERS(C, to_host)                                                                             \
    C(copies_n) C(copies_bytes)                                                                             \
    C(allocations) C(failed_allocations) C(frees) C(bytes_given) C(bytes_now) C(bytes_peak)                 \
    C(graphs) C(nodes) C(expert_nodes) C(expert_rows) C(expert_bytes)                                       \
    C(synchronizes) C(failures) C(hazards) C(weights_before_read)
// clang-format on

enum Counter : std::size_t {
#define CHAOS_ENUM(name) c_##name,
    CHAOS_COUNTERS(CHAOS_ENUM)
#undef CHAOS_ENUM
        kCounters
};

class Counters {
   public:
    void add(Counter counter, std::uint64_t n = 1) { values_[counter].fetch_add(n, std::memory_order_relaxed); }
    std::uint64_t operator[](Counter counter) const { return values_[counter].load(std::memory_order_relaxed); }

    void add_transfer(bool to_host, bool is_weight, bool is_blocking, std::uint64_t bytes) {
        const std::size_t at = c_to_device_other_async_n + (to_host ? 8U : 0U) + (is_weight ? 4U : 0U) + (is_blocking ? 2U : 0U);
        add(static_cast<Counter>(at));
        add(static_cast<Counter>(at + 1), bytes);
    }

    void add_allocation(std::uint64_t bytes) {
        add(c_allocations);
        add(c_bytes_given, bytes);
        const std::uint64_t now = values_[c_bytes_now].fetch_add(bytes, std::memory_order_relaxed) + bytes;
        std::uint64_t peak = (*this)[c_bytes_peak];
        while (peak < now && !values_[c_bytes_peak].compare_exchange_weak(peak, now)) continue;
    }

    void add_read(std::uint64_t weights_bytes) {
        std::uint64_t most = (*this)[c_weights_before_read];
        while (most < weights_bytes && !values_[c_weights_before_read].compare_exchange_weak(most, weights_bytes)) continue;
    }

    void add_free(std::uint64_t bytes) {
        add(c_frees);
        values_[c_bytes_now].fetch_sub(bytes, std::memory_order_relaxed);
    }

    void reset() {
        for (std::size_t i = 0; i < kCounters; i++) {
            if (i != c_bytes_now) values_[i].store(i == c_bytes_peak ? (*this)[c_bytes_now] : 0, std::memory_order_relaxed);
        }
    }

   private:
    std::array<std::atomic<std::uint64_t>, kCounters> values_{};
};

}  // namespace chaos
