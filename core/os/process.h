// This process: what depends on the operating system about it is only here.
#pragma once

namespace slotpool::os {

// Its number; a fork has another.
int process_number();

}  // namespace slotpool::os
