// Where the loader puts planned expert tensors: into the store, whatever device the layer lives on, and without any flag.
//
// The loader asks the layer's device first, with a dummy. So the devices of a plan answer through us, those without slots too, whose layers
// take the stock path: no to the dummy of a planned expert tensor while its model is loaded, and otherwise what they always said. Experts whose
// slots are on devices that the program does not have stay where the loader wants them: repacked, or on a device, as without us.
#pragma once

#include "abi/ggml_api.h"
#include "plan/plan.h"

namespace slotpool {

// The planned tensor that the loader asks about, whether it may lie in a buffer type; nullptr for any other question. It asks with the
// operation that will use the tensor, an expert matmul or the addition of a bias by expert, and the tensor sits in an empty buffer. A pass that only
// measures (no_alloc) has real nodes on empty buffers, marked as weights: those are none.
const abi::Tensor *planned_in_question(const abi::Tensor *op);

// Makes the devices of the plan that ggml knows by now answer through us, and tell us of their streams. Once for each; for the life of the process.
void keep_experts_off(const Plan &plan);

}  // namespace slotpool
