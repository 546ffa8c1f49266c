// On which device a layer lives, read from a graph: the weights of the layer say it.
#pragma once

#include <string>

#include "abi/ggml_api.h"

namespace slotpool {

// ggml's name of the device that holds the router of layer `layer`, found by walking from the ids of the expert matmul `op`; where there is
// no router or it lies on the host, of another weight of the layer that its input comes from. "CPU" when all of them lie on the host;
// empty when none was found.
std::string layer_device(const abi::Api &api, const abi::Tensor *op, int layer);

}  // namespace slotpool
