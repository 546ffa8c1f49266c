// The CPU device, slowed down: every CPU backend made later takes a declared time for the experts it computes.
#pragma once

#include "device.h"

namespace chaos {

// Replaces how ggml's CPU device makes backends. Only when somebody asks for it; again is harmless.
void slow_cpu_down();

}  // namespace chaos
