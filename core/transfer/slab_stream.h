// Slabs that pass through a ring, in the order they will be used, read ahead as far as the ring is long. Neighbours in the file
// are read together.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transfer/ring.h"
#include "transfer/slab_source.h"

namespace slotpool {

// Slabs of neighbouring experts, in the ring.
struct SlabRun {
    std::size_t tensor = 0;  // index in the stream's tensors
    std::int32_t first = 0;
    std::int32_t n = 0;
    Fetch fetch{};
};

class SlabStream {
   public:
    SlabStream(SlabSource &source, std::size_t ring_bytes) : source_(source), ring_(ring_bytes) {}
    ~SlabStream() { stop(); }
    SlabStream(const SlabStream &) = delete;
    SlabStream &operator=(const SlabStream &) = delete;

    bool is_there() const { return ring_.is_there(); }
    // Will bring `experts` (ascending) of the tensors that `order` names, one tensor after the other. Begins to read at once.
    void start(const StoredTensors &tensors, const std::vector<std::size_t> &order, const std::vector<std::int32_t> &experts);
    void stop();

    // The tensor of the next run; -1 when nothing is left.
    int next_tensor() const { return coming_.empty() ? -1 : static_cast<int>(coming_.front()->tensor); }
    // Waits for the next run. nullptr and one line in `error` when it will not come.
    const SlabRun *wait(std::string &error);
    void done_with_run();  // its memory is the ring's again

   private:
    void plan_runs(std::size_t tensor, const std::vector<std::int32_t> &experts);
    void read_ahead();

    SlabSource &source_;
    Ring ring_;
    StoredTensors tensors_;
    std::deque<std::unique_ptr<SlabRun>> planned_;
    std::deque<std::unique_ptr<SlabRun>> coming_;  // oldest first, like the ring's rooms
};

// Bytes of a ring that keeps a disk busy for these tensors.
std::size_t ring_bytes(const SlabSource &source, const StoredTensors &tensors);

}  // namespace slotpool
