#include "backend/layer_device.h"

#include <algorithm>
#include <string>
#include <vector>

namespace slotpool {
namespace {

constexpr std::size_t kMostTensors = 96;  // of a layer's graph: enough to get past its attention

// Breadth first through what `from` is computed from. `visit` returns true to end.
template <class Visit>
void walk(const abi::Tensor *from, Visit visit) {
    std::vector<const abi::Tensor *> seen = {from};
    for (std::size_t i = 0; i < seen.size() && seen.size() < kMostTensors; i++) {
        if (visit(*seen[i])) return;
        const auto add = [&](const abi::Tensor *next) {
            if (next != nullptr && std::find(seen.begin(), seen.end(), next) == seen.end()) seen.push_back(next);
        };
        add(seen[i]->view_src);
        for (const abi::Tensor *next : seen[i]->src) add(next);
    }
}

bool is_weight(const abi::Api &api, const abi::Tensor &tensor) {
    return tensor.buffer != nullptr && tensor.data != nullptr && api.buffer_usage(tensor.buffer) == abi::kUsageWeights;
}

std::string device_of(const abi::Api &api, const abi::Tensor &weight) {
    abi::BufferType *type = api.buffer_type(weight.buffer);
    abi::Device *device = api.buft_device(type);
    return api.buft_is_host(type) || device == nullptr ? "CPU" : api.dev_name(device);
}

}  // namespace

std::string layer_device(const abi::Api &api, const abi::Tensor *op, int layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    std::string found;
    const auto look = [&](const abi::Tensor &tensor) {
        if (std::string(tensor.name).rfind(prefix, 0) != 0 || !is_weight(api, tensor)) return false;
        found = device_of(api, tensor);
        return found != "CPU";
    };
    walk(op->src[2], look);
    if (found.empty() || found == "CPU") walk(op->src[1], look);
    return found;
}

}  // namespace slotpool
