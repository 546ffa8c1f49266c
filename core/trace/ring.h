// A ring of events from one computing thread to the trace writer: no locks, no waiting; what does not fit is counted as dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace slotpool::trace {

// The routing of one group in one ubatch of a context. Rows in (token, k) order.
struct Event {
    std::uint64_t ubatch = 0;  // as the context counts
    bool is_prompt = false;
    std::int32_t n_used = 0;  // k
    std::vector<std::int32_t> ids;

    std::size_t n_rows() const { return n_used > 0 ? ids.size() / static_cast<std::size_t>(n_used) : 0; }
};

// One producer and one consumer, each on a thread of its own.
class Ring {
   public:
    explicit Ring(std::size_t n_words_log2 = 17) : mask_((std::size_t{1} << n_words_log2) - 1), words_(new std::int32_t[mask_ + 1]) {}

    // The producer's side. Copies the ids; an event for which there is no room is dropped.
    void push(std::uint64_t ubatch, bool is_prompt, std::int64_t n_used, const std::vector<std::int32_t> &ids);
    // The consumer's side. False when there is none.
    bool pop(Event &out);

    // Nobody will read any more: what comes from now on is forgotten, and not counted.
    void close() { is_closed_.store(true, std::memory_order_relaxed); }
    std::uint64_t n_dropped() const { return n_dropped_.load(std::memory_order_relaxed); }

   private:
    static constexpr std::size_t kHeader = 5;  // ids, k, phase, ubatch in two halves

    void put(std::size_t at, std::int32_t word) { words_[at & mask_] = word; }
    std::int32_t get(std::size_t at) const { return words_[at & mask_]; }

    const std::size_t mask_;
    std::unique_ptr<std::int32_t[]> words_;  // untouched until used
    std::atomic<std::size_t> head_{0};       // where the producer writes next; never wraps, places are masked
    std::atomic<std::size_t> tail_{0};       // where the consumer reads next
    std::atomic<std::uint64_t> n_dropped_{0};
    std::atomic<bool> is_closed_{false};
};

}  // namespace slotpool::trace
