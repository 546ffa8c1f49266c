// Hazards: work that touches what queued, not yet executed work reads or writes, with nobody having waited.
#pragma once

#include <memory>
#include <string>

#include "ranges.h"

namespace chaos {

struct Device;
class Stream;

// What one piece of work touches: device memory by its private addresses, and host memory.
struct Touch {
    const Stream *stream = nullptr;  // none: a blocking call
    Device *device = nullptr;
    std::string what;
    Ranges reads, writes;
    Ranges fresh;        // of `writes`: what the work never reads before it wrote it, and writes whole
    Ranges maybe_reads;  // experts: which of them is known when the work is executed, so uses() decides then
};

using Touched = std::shared_ptr<const Touch>;

// A blocking call: counted as a hazard of its device where it conflicts with any stream's queued work.
void check_blocking(const Touch &touch);
// Work that is being queued: a hazard where it conflicts with other streams' work. Its fresh results are poisoned, except where
// work before it still needs the bytes. From here to finish() it is pending.
void begin(const Touched &touch, bool poison);
void finish(const Touched &touch);
// What pending work really reads of its maybe_reads, said when it is executed: a hazard where somebody wrote there meanwhile.
void uses(const Touched &touch, const Ranges &reads);

std::string first_hazard();
void forget_hazards();

}  // namespace chaos
