// Slabs that have no slot, in waves: two halves of a piece of memory, one that is used while the other is being filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "transfer/slab_source.h"

namespace slotpool {

class SlabWaves {
   public:
    // Bytes of memory in which waves of these tensors flow: room for two experts at least, for all of them at most, and `most` otherwise.
    static std::size_t bytes(const SlabSource &source, const StoredTensors &tensors, std::size_t most);

    SlabWaves(SlabSource &source, std::size_t n_bytes);  // is_there() is false when the system has no such memory
    ~SlabWaves();
    SlabWaves(const SlabWaves &) = delete;
    SlabWaves &operator=(const SlabWaves &) = delete;

    bool is_there() const { return base_ != nullptr; }
    // Experts in a wave of those tensors; at least one.
    std::size_t most(const StoredTensors &tensors, const std::vector<std::size_t> &indices) const;
    // Begins to bring a wave, behind the one that is in use. At most two are here.
    void begin(const StoredTensors &tensors, const std::vector<std::int32_t> &experts, const std::vector<std::size_t> &indices);
    // Waits for the older wave. False and one line in `error` when it will not come.
    bool wait(std::string &error);
    void end();   // the older wave is not used any more
    void drop();  // no wave is
    // Of the older wave; nullptr: not in it.
    const std::uint8_t *slab(std::size_t index, std::int32_t expert) const;

   private:
    struct Wave {
        std::vector<std::int32_t> experts{};
        std::vector<std::size_t> indices{};
        std::deque<Fetch> fetches{};  // by index and expert; addresses stay
        std::size_t half = 0;         // of the memory
    };

    SlabSource &source_;
    std::size_t half_bytes_;
    std::uint8_t *base_;
    std::deque<Wave> waves_;  // oldest first
};

}  // namespace slotpool
