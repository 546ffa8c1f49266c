#include "repack/repacking.h"

#include <algorithm>
#include <cstring>

namespace slotpool {
namespace {

using ExtraBufferTypesFn = abi::BufferType **(*)(abi::Device *);

constexpr const char *kRepackType = "CPU_REPACK";
constexpr std::size_t kTokenBytes = 64;  // nothing ever lies in our buffer of that type
constexpr std::int64_t kAskedTokens = 512;

// Chunk experts: a token may ask for one of them twice. The engine's kernels for repacked weights have room for one row per token and expert,
// so a second one lands where another expert's is (docs/log.md, 2026-11-30), and what they compute then is wrong.
bool may_repeat(const StoredTensor &stored) { return stored.session->plan.groups[static_cast<std::size_t>(stored.planned->group)].pass == "chexps"; }

}  // namespace

Repacking::Repacking(const abi::Api &api, abi::Device *device, int op_mul_mat_id) : api_(api), device_(device), op_mul_mat_id_(op_mul_mat_id) {
    const auto all = reinterpret_cast<ExtraBufferTypesFn>(api_.reg_proc_address(api_.dev_reg(device_), "ggml_backend_dev_get_extra_bufts"));
    abi::BufferType **type = all == nullptr ? nullptr : all(device_);
    for (; type != nullptr && *type != nullptr; type++) {
        if (abi::Buffer *empty = api_.buft_alloc(*type, 0); empty != nullptr) types_.emplace_back(*type, empty);
        if (std::strcmp(api_.buft_name(*type), kRepackType) == 0) buffer_ = api_.buft_alloc(*type, kTokenBytes);
    }
}

Repacking::~Repacking() {
    for (const auto &[type, empty] : types_) api_.buffer_free(empty);
    if (buffer_ != nullptr) api_.buffer_free(buffer_);
}

const RepackedLayout *Repacking::of(const StoredTensor &stored) {
    const auto found = layouts_.find(stored.serial);
    return (found != layouts_.end() ? found : layouts_.emplace(stored.serial, make(stored)).first)->second.get();
}

std::unique_ptr<RepackedLayout> Repacking::make(const StoredTensor &stored) {
    if (buffer_ == nullptr || may_repeat(stored) || choice(stored) != api_.buffer_type(buffer_)) return nullptr;
    abi::Tensor weight = stored.shape;
    weight.buffer = buffer_;
    weight.extra = nullptr;
    if (buffer_->iface.init_tensor(buffer_, &weight) != abi::Status::success || weight.extra == nullptr) return nullptr;
    const std::shared_ptr<const Interleave> learned = interleave(weight.type, weight.extra);
    if (!learned || weight.ne[1] % static_cast<std::int64_t>(learned->n_rows()) != 0) return nullptr;
    std::unique_ptr<RepackedLayout> made(new RepackedLayout);
    made->interleave_ = learned;
    made->row_bytes_ = weight.nb[1];
    made->n_blocks_ = weight.nb[1] / weight.nb[0];
    made->unit_ = learned->n_rows() * weight.nb[1];
    made->buffer_ = buffer_;
    made->traits_ = weight.extra;
    return made;
}

// llama.cpp takes the first of the device's own types from which the device computes the weight's operation.
abi::BufferType *Repacking::choice(const StoredTensor &stored) const {
    abi::Tensor weight = stored.shape;
    abi::Tensor input = probe_tensor(abi::kTypeF32, weight.ne[0], 1);
    input.ne[2] = kAskedTokens;
    input.nb[3] = input.nb[2] * static_cast<std::size_t>(kAskedTokens);
    abi::Tensor ids = probe_tensor(abi::kTypeI32, 1, kAskedTokens);
    abi::Tensor op = probe_tensor(abi::kTypeF32, weight.ne[1], 1);
    op.ne[2] = kAskedTokens;
    op.nb[3] = op.nb[2] * static_cast<std::size_t>(kAskedTokens);
    op.op = op_mul_mat_id_;
    op.src[0] = &weight;
    op.src[1] = &input;
    op.src[2] = &ids;
    const auto found = std::find_if(types_.begin(), types_.end(), [&](const auto &type) {
        weight.buffer = type.second;
        return api_.dev_supports_op(device_, &op);
    });
    return found == types_.end() ? nullptr : found->first;
}

std::shared_ptr<const Interleave> Repacking::interleave(int type, void *traits) {
    const Learned wanted{type, traits};
    for (const auto &[known, learned] : learned_) {
        if (known == wanted) return learned;
    }
    abi::Tensor rows = probe_tensor(type, static_cast<std::int64_t>(Interleave::kProbeBlocks) * api_.blck_size(type), Interleave::kProbeRows);
    rows.buffer = buffer_;
    std::strncpy(rows.name, "slotpool's question", sizeof(rows.name) - 1);  // the engine's log has a line for each
    const bool is_same = buffer_->iface.init_tensor(buffer_, &rows) == abi::Status::success && rows.extra == traits;
    std::shared_ptr<const Interleave> learned;
    if (is_same) {
        learned = Interleave::learn(rows.nb[0], [&](const std::uint8_t *from, std::uint8_t *to) {
            rows.data = to;
            api_.tensor_set(&rows, from, 0, rows.nb[2]);
        });
    }
    learned_.emplace_back(wanted, learned);
    return learned;
}

// a [n_in, n_out] matrix without memory
abi::Tensor Repacking::probe_tensor(int type, std::int64_t n_in, std::int64_t n_out) const {
    abi::Tensor tensor{};
    tensor.type = type;
    tensor.ne[0] = n_in;
    tensor.ne[1] = n_out;
    tensor.ne[2] = tensor.ne[3] = 1;
    tensor.nb[1] = api_.row_size(type, n_in);
    tensor.nb[0] = tensor.nb[1] / static_cast<std::size_t>(n_in / api_.blck_size(type));
    tensor.nb[2] = tensor.nb[3] = tensor.nb[1] * static_cast<std::size_t>(n_out);
    return tensor;
}

}  // namespace slotpool
