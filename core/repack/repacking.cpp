#include "repack/repacking.h"

#include <cstring>

namespace slotpool {
namespace {

constexpr std::size_t kTokenBytes = 64;  // nothing ever lies in our buffer of that type

// Chunk experts: a token may ask for one of them twice. The engine's kernels for repacked weights have room for one row per token and expert,
// so a second one lands where another expert's is (docs/log.md, 2026-11-30), and what they compute then is wrong.
bool may_repeat(const StoredTensor &stored) { return stored.session->plan.groups[static_cast<std::size_t>(stored.planned->group)].pass == "chexps"; }

}  // namespace

Repacking::Repacking(const abi::Api &api, abi::Device *device, int op_mul_mat_id) : api_(api), op_mul_mat_id_(op_mul_mat_id), types_(api, device) {
    if (types_.repacked() != nullptr) buffer_ = api_.buft_alloc(types_.repacked(), kTokenBytes);
}

Repacking::~Repacking() {
    if (buffer_ != nullptr) api_.buffer_free(buffer_);
}

const RepackedLayout *Repacking::of(const StoredTensor &stored) {
    const auto found = layouts_.find(stored.serial);
    return (found != layouts_.end() ? found : layouts_.emplace(stored.serial, make(stored)).first)->second.get();
}

std::unique_ptr<RepackedLayout> Repacking::make(const StoredTensor &stored) {
    if (buffer_ == nullptr || may_repeat(stored) || !types_.is_repacked(stored.shape, op_mul_mat_id_, true)) return nullptr;
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

std::shared_ptr<const Interleave> Repacking::interleave(int type, void *traits) {
    const Learned wanted{type, traits};
    for (const auto &[known, learned] : learned_) {
        if (known == wanted) return learned;
    }
    abi::Tensor rows = array_of(api_, type, static_cast<std::int64_t>(Interleave::kProbeBlocks) * api_.blck_size(type), Interleave::kProbeRows, 1);
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

}  // namespace slotpool
