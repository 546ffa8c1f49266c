// Memory that bytes pass through in the order they came: rooms are taken at one end and given back at the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace slotpool {

class Ring {
   public:
    explicit Ring(std::size_t size);  // bytes; is_there() is false when the system has no such memory
    ~Ring();
    Ring(const Ring &) = delete;
    Ring &operator=(const Ring &) = delete;

    bool is_there() const { return base_ != nullptr; }
    std::size_t size() const { return size_; }
    // Room for `bytes`, aligned to a page; nullptr while there is none. Never fails on an empty ring for bytes <= size().
    std::uint8_t *take(std::size_t bytes);
    // Gives back the oldest room.
    void give_back();

   private:
    struct Room {
        std::size_t begin;
        std::size_t end;
    };
    std::size_t size_;
    std::uint8_t *base_;
    std::deque<Room> taken_;  // oldest first
};

}  // namespace slotpool
