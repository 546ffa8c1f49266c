#include "transfer/ring.h"

#include "os/memory.h"

namespace slotpool {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t align_up(std::size_t n) { return (n + kPage - 1) / kPage * kPage; }

}  // namespace

Ring::Ring(std::size_t size) : size_(align_up(size)), base_(static_cast<std::uint8_t *>(os::reserve_memory(size_))) {
    if (base_ != nullptr) os::keep_from_children(base_, size_);
}

Ring::~Ring() {
    if (base_ != nullptr) os::release_memory(base_, size_);
}

std::uint8_t *Ring::take(std::size_t bytes) {
    const std::size_t wanted = align_up(bytes);
    const std::size_t oldest = taken_.empty() ? 0 : taken_.front().begin;
    std::size_t begin = taken_.empty() ? 0 : taken_.back().end;
    const bool has_wrapped = !taken_.empty() && taken_.back().begin < oldest;
    if (!has_wrapped && begin + wanted > size_) begin = 0;  // what is left at the end is too short: begin again at the front
    const bool is_before_oldest = !taken_.empty() && begin <= oldest && (has_wrapped || begin < taken_.back().end);
    if (begin + wanted > (is_before_oldest ? oldest : size_)) return nullptr;
    taken_.push_back({begin, begin + wanted});
    return base_ + begin;
}

void Ring::give_back() { taken_.pop_front(); }

}  // namespace slotpool
