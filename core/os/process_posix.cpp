// The number of this process on POSIX systems.
#include <unistd.h>

#include "os/process.h"

namespace slotpool::os {

int process_number() { return static_cast<int>(getpid()); }

}  // namespace slotpool::os
