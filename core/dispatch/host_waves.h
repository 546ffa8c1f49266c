// The rows that the host computes, wave by wave: as many experts at a time as the host has room for, and as many rows as the compute has.
// While a wave is computed the next one is brought.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dispatch/event_rows.h"
#include "transfer/host_slabs.h"

namespace slotpool {

class HostWaves {
   public:
    // `rows` of an event for which `slabs` has begun; kept experts come first in it (kept_first()). `indices`: the tensors that are used.
    HostWaves(const EventRows &rows, HostSlabs &slabs, std::vector<std::size_t> indices, std::size_t most_rows);
    ~HostWaves() { slabs_.drop_waves(); }
    HostWaves(const HostWaves &) = delete;
    HostWaves &operator=(const HostWaves &) = delete;

    // Waits for the next wave. nullptr: none is left, or, with one line in `error`, it will not come.
    const EventRows *next(std::string &error);

   private:
    struct Part {  // experts [begin, end) of the rows
        std::size_t begin;
        std::size_t end;
        std::vector<std::int32_t> loose;
    };
    void cut(std::size_t most_rows);
    void read_ahead();
    bool wait(const Part &part, std::string &error);
    void end_wave();
    void show(const Part &part);

    const EventRows &rows_;
    HostSlabs &slabs_;
    std::vector<std::size_t> indices_;
    std::vector<Part> parts_;
    std::size_t n_done_ = 0;     // parts that were handed out
    std::size_t n_begun_ = 0;    // parts whose loose experts are on their way or were
    std::size_t n_in_room_ = 0;  // waves of loose experts that are here
    bool has_wave_ = false;      // the part in use has a wave
    EventRows wave_;
};

// Puts the experts that `slabs` keeps before those that come in waves; each part stays in its order.
void kept_first(EventRows &rows, const HostSlabs &slabs);

}  // namespace slotpool
