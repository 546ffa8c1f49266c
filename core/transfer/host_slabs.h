// Where the host has slabs of a group's experts, for whoever copies them to a device or computes from them: the one seam below the
// pools of a device. Host memory has every expert always; over a disk there are slots in RAM (dispatch/ram_slabs) and, for experts that
// have none, room in which they are for a moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stats/stats.h"
#include "store/session.h"

namespace slotpool {

// An event that wants slabs: the expert of each row, and the group's tensors in the order in which the layer uses them.
struct WantedSlabs {
    const std::vector<std::int32_t> &ids;
    const std::vector<std::size_t> &order;
    Phase phase;
    bool is_passing;  // too large for the pool of the device: free room may be filled, nobody loses theirs
};

// Used by the thread that computes, alone. `index` is a tensor's place in tensors().
class HostSlabs {
   public:
    explicit HostSlabs(StoredTensors tensors) : tensors_(std::move(tensors)) {}
    virtual ~HostSlabs() = default;
    HostSlabs(const HostSlabs &) = delete;
    HostSlabs &operator=(const HostSlabs &) = delete;

    const StoredTensors &tensors() const { return tensors_; }
    int index_of(const StoredTensor &stored) const;

    // Before the first event: this tier keeps experts of its own, all but the n_skipped hottest of the plan, which another tier has.
    virtual void warm(int n_skipped) = 0;
    // An event begins, and the one before it is over: brings what it wants, in the background. Ids are in range.
    virtual void begin(const WantedSlabs &wanted) = 0;
    // The event failed: what did not come has no place, the next event begins anew.
    virtual void forget() = 0;

    // True for an expert of the event that has a place of its own: it stays there until the next event, and as long as it is pinned.
    virtual bool is_kept(std::int32_t expert) const = 0;
    // Waits for a slab of a kept expert. False and one line in `error` when it will not come.
    virtual bool wait(std::size_t index, std::int32_t expert, std::string &error) = 0;
    // Somebody reads the slabs of a kept expert, all of which have come, beyond the event.
    virtual void pin(std::int32_t expert) = 0;
    virtual void unpin(std::int32_t expert) = 0;

    // Experts that are not kept come in waves of at most so many, of so many of the group's tensors; two waves can be here at a time.
    virtual std::size_t n_in_wave(const std::vector<std::size_t> &indices) const = 0;
    virtual void begin_wave(const std::vector<std::int32_t> &experts, const std::vector<std::size_t> &indices) = 0;
    // Waits for the older wave.
    virtual bool wait_for_wave(std::string &error) = 0;
    virtual void end_wave() = 0;
    virtual void drop_waves() = 0;

    // Of an expert that was waited for: kept, or of the older wave.
    virtual const std::uint8_t *slab(std::size_t index, std::int32_t expert) const = 0;

   protected:
    StoredTensors tensors_;
};

// Experts in host memory: nothing to bring, nothing to keep.
std::unique_ptr<HostSlabs> slabs_in_memory(StoredTensors tensors);

}  // namespace slotpool
