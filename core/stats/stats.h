// Counters of one group (the expert tensors of a layer that share a routing), prompt and generation apart.
//
// One lookup is one distinct expert of one event; lookups = hits + misses. Rows are (token, k) pairs. bytes_copied and
// bytes_saved count the slabs of all tensors of the group. Times are nanoseconds.
//
// They may lie in memory that other processes read (stats/page_layout.h has the layout): no pointers, eight bytes each.
#pragma once

#include <atomic>
#include <cstdint>

namespace slotpool {

enum class Phase : int { generation = 0, prompt = 1 };
constexpr int kPhases = 2;

// An ubatch of at most this many tokens is generation: speculative verification and parallel sequences are small batches.
constexpr std::int64_t kGenerationTokens = 8;

// Written by the computing thread alone, read by others at any time: relaxed order is enough for counting.
class Count {
   public:
    void add(std::uint64_t n) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
    std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }
    void reset() { value_.store(0, std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
};

// Goes up and down, and is changed by any thread.
class Gauge {
   public:
    void set(std::uint64_t n) { value_.store(n, std::memory_order_relaxed); }
    void add(std::uint64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
    void subtract(std::uint64_t n) { value_.fetch_sub(n, std::memory_order_relaxed); }
    std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
};

struct PhaseCounts {
    Count events;
    Count lookups;
    Count hits;
    Count misses;
    Count rows_hit;
    Count rows_copy;
    Count rows_cpu;
    Count bytes_copied;
    Count bytes_saved;
    Count ranges_copied;    // copies to a device: slabs that follow each other go in one
    Count empty_copies;     // events that needed no copy at all
    Count wait_ns;          // the computing thread waited for slabs: reads that compute did not hide
    Count copy_ns;          // slabs were copied into slots
    Count update_ns;        // the pool's own bookkeeping
    Count hit_compute_ns;   // rows were computed from slots
    Count miss_compute_ns;  // rows were computed where their experts lie
};

struct GroupCounts {
    PhaseCounts phase[kPhases];
    Count refused;            // ubatches whose expert matmuls went the stock path because they did not fit the slots
    Count admitted;           // experts that were given a slot
    Count evicted;            // experts that lost theirs to another
    Gauge uploads_in_flight;  // slabs on their way into slots now; not a counter, so a reset leaves it
    Count warmed;             // experts that slots began with, copied and counted by no phase
    Gauge pinned;             // slots now that hold experts that are never evicted
};

// What a device gave to pools, bytes. kUnknown where nobody has asked yet.
struct DeviceMemory {
    static constexpr std::uint64_t kUnknown = ~0ULL;
    Gauge budget;  // what pools may take
    Gauge taken;   // what they did
    Gauge free;    // what there was when they took it, reserves not taken off
    // What misses cost there lately, nanoseconds, means that forget; 0 where nothing was measured. Of an expert of a layer:
    Gauge copy_ns;
    Gauge host_ns;  // computed by the CPU
    // Of an event: one with nothing but hits, and the CPU's inputs and results in one that it had a part in.
    Gauge hits_ns;
    Gauge fetch_ns;
    Gauge staging;  // bytes, of what was taken: room for experts that only pass through
};

}  // namespace slotpool
