#include "repack/weight_types.h"

#include <algorithm>
#include <cstring>

namespace slotpool {
namespace {

using ExtraBufferTypesFn = abi::BufferType **(*)(abi::Device *);

constexpr const char *kRepackType = "CPU_REPACK";
constexpr std::int64_t kAskedTokens = 512;

}  // namespace

abi::Tensor array_of(const abi::Api &api, int type, std::int64_t n_in, std::int64_t n_out, std::int64_t n_matrices) {
    abi::Tensor tensor{};
    tensor.type = type;
    tensor.ne[0] = n_in;
    tensor.ne[1] = n_out;
    tensor.ne[2] = n_matrices;
    tensor.ne[3] = 1;
    tensor.nb[1] = api.row_size(type, n_in);
    tensor.nb[0] = tensor.nb[1] / static_cast<std::size_t>(n_in / api.blck_size(type));
    tensor.nb[2] = tensor.nb[1] * static_cast<std::size_t>(n_out);
    tensor.nb[3] = tensor.nb[2] * static_cast<std::size_t>(n_matrices);
    return tensor;
}

WeightTypes::WeightTypes(const abi::Api &api, abi::Device *cpu) : api_(api) {
    // a model is given integrated devices only where there are no others
    abi::Device *device = device_with_host_memory(abi::DeviceType::gpu);
    if (device == nullptr && api_.dev_by_type(abi::DeviceType::gpu) == nullptr) device = device_with_host_memory(abi::DeviceType::igpu);
    if (device != nullptr) add(device, api_.dev_host_buffer_type(device));
    const auto all = reinterpret_cast<ExtraBufferTypesFn>(api_.reg_proc_address(api_.dev_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
    abi::BufferType **type = all == nullptr ? nullptr : all(cpu);
    for (; type != nullptr && *type != nullptr; type++) {
        add(cpu, *type);
        if (std::strcmp(api_.buft_name(*type), kRepackType) == 0) repacked_ = *type;
    }
}

WeightTypes::~WeightTypes() {
    for (const Candidate &candidate : candidates_) api_.buffer_free(candidate.empty);
}

void WeightTypes::add(abi::Device *device, abi::BufferType *type) {
    if (abi::Buffer *empty = api_.buft_alloc(type, 0); empty != nullptr) candidates_.push_back({device, type, empty});
}

abi::Device *WeightTypes::device_with_host_memory(abi::DeviceType kind) const {
    for (std::size_t i = 0; i < api_.reg_count(); i++) {
        abi::Registry *registry = api_.reg_get(i);
        for (std::size_t j = 0; j < api_.reg_dev_count(registry); j++) {
            abi::Device *device = api_.reg_dev_get(registry, j);
            if (api_.dev_type(device) == kind && api_.dev_host_buffer_type(device) != nullptr) return device;
        }
    }
    return nullptr;
}

bool WeightTypes::is_repacked(const abi::Tensor &weight, int op, bool has_ids) const {
    const std::int64_t n_rows = has_ids ? 1 : kAskedTokens;
    const std::int64_t n_calls = has_ids ? kAskedTokens : 1;
    abi::Tensor asked = weight;
    abi::Tensor input = array_of(api_, abi::kTypeF32, weight.ne[0], n_rows, n_calls);
    abi::Tensor ids = array_of(api_, abi::kTypeI32, 1, kAskedTokens, 1);
    abi::Tensor node = array_of(api_, abi::kTypeF32, weight.ne[1], n_rows, n_calls);
    node.op = op;
    node.src[0] = &asked;
    node.src[1] = &input;
    node.src[2] = has_ids ? &ids : nullptr;
    const auto found = std::find_if(candidates_.begin(), candidates_.end(), [&](const Candidate &candidate) {
        asked.buffer = candidate.empty;
        return api_.dev_supports_op(candidate.device, &node);
    });
    return found != candidates_.end() && found->type == repacked_;
}

}  // namespace slotpool
