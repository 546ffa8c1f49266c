#include "trace/ring.h"

namespace slotpool::trace {

void Ring::push(std::uint64_t ubatch, bool is_prompt, std::int64_t n_used, const std::vector<std::int32_t> &ids) {
    if (is_closed_.load(std::memory_order_relaxed)) return;
    const std::size_t head = head_.load(std::memory_order_relaxed);
    const std::size_t n_free = mask_ + 1 - (head - tail_.load(std::memory_order_acquire));
    if (ids.size() + kHeader > n_free) {
        n_dropped_.store(n_dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return;
    }
    put(head, static_cast<std::int32_t>(ids.size()));
    put(head + 1, static_cast<std::int32_t>(n_used));
    put(head + 2, is_prompt ? 1 : 0);
    put(head + 3, static_cast<std::int32_t>(static_cast<std::uint32_t>(ubatch)));
    put(head + 4, static_cast<std::int32_t>(static_cast<std::uint32_t>(ubatch >> 32)));
    for (std::size_t i = 0; i < ids.size(); i++) put(head + kHeader + i, ids[i]);
    head_.store(head + kHeader + ids.size(), std::memory_order_release);
}

bool Ring::pop(Event &out) {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail == head_.load(std::memory_order_acquire)) return false;
    const auto half = [&](std::size_t at) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(get(at))); };
    out.ids.resize(static_cast<std::size_t>(get(tail)));
    out.n_used = get(tail + 1);
    out.is_prompt = get(tail + 2) != 0;
    out.ubatch = half(tail + 3) | half(tail + 4) << 32;
    for (std::size_t i = 0; i < out.ids.size(); i++) out.ids[i] = get(tail + kHeader + i);
    tail_.store(tail + kHeader + out.ids.size(), std::memory_order_release);
    return true;
}

}  // namespace slotpool::trace
