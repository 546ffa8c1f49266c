// The weights beside the experts, where experts stay on disk: nothing is mapped then, so the engine has them in ordinary memory of its own,
// on small pages, and computes a few per cent slower from there than from slots.
#pragma once

#include "abi/ggml_api.h"

namespace slotpool {

// Asks for huge pages under the weights that `op` uses, once for each buffer that a model which is being loaded from disk has them in.
// Advice: nothing changes but speed.
void put_on_huge_pages(const abi::Tensor *op);

}  // namespace slotpool
