#include "dispatch/host_ffn.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

namespace slotpool {
namespace {

bool is_add_id(const abi::Api &api, const abi::Tensor *node) { return std::strcmp(api.op_name(node->op), "ADD_ID") == 0; }

abi::Tensor ids_tensor(std::size_t n, std::int32_t *data) {
    abi::Tensor ids{};
    ids.type = abi::kTypeI32;
    ids.ne[0] = ids.ne[2] = ids.ne[3] = 1;
    ids.ne[1] = static_cast<std::int64_t>(n);
    ids.nb[0] = ids.nb[1] = sizeof(std::int32_t);
    ids.nb[2] = ids.nb[3] = n * sizeof(std::int32_t);
    ids.data = data;
    return ids;
}

// how far into a row of its maker a view's row begins; -1 when the view is not of that kind
std::ptrdiff_t shift_of_view(const abi::Tensor &view, const abi::Tensor &made) {
    const bool has_its_rows = view.ne[1] == made.ne[1] && view.ne[2] == made.ne[2] && view.ne[3] == 1 && view.nb[0] == made.nb[0] &&
                              view.nb[1] == made.nb[1] && view.nb[2] == made.nb[2];
    const auto shift = static_cast<const std::uint8_t *>(view.data) - static_cast<const std::uint8_t *>(made.data);
    const std::size_t end = static_cast<std::size_t>(shift) + static_cast<std::size_t>(view.ne[0]) * sizeof(float);
    return has_its_rows && shift >= 0 && end <= made.nb[1] ? shift : -1;
}

}  // namespace

HostFfn::HostFfn(const abi::Api &api)
    : api_(api), backend_(api.dev_init(api.dev_by_type(abi::DeviceType::cpu), nullptr)), graph_(api, backend_), operands_(api) {}

HostFfn::~HostFfn() {
    if (backend_ != nullptr) api_.backend_free(backend_);
}

bool HostFfn::can_compute(const ExpertChain &chain) const {
    return std::all_of(chain.nodes.begin(), chain.nodes.end(), [&](const ChainNode &node) { return can_compute(chain, node); });
}

bool HostFfn::can_compute(const ExpertChain &chain, const ChainNode &node) const {
    if (node.is_view) return true;
    if (node.node->type != abi::kTypeF32 || node.node->ne[3] != 1) return false;
    const std::size_t n_operands = node.stored != nullptr || is_add_id(api_, node.node) ? 2 : std::size(node.node->src);
    for (std::size_t i = node.stored != nullptr ? 1 : 0; i < n_operands; i++) {
        const abi::Tensor *src = node.node->src[i];
        if (src == nullptr) continue;
        const int maker = chain.maker_of(src);
        if (maker >= 0 && shift_of_view(*src, *chain.nodes[static_cast<std::size_t>(maker)].node) < 0) return false;
        if (maker >= 0) continue;
        if (has_table(node.node, i) ? src->type != abi::kTypeF32 || src->nb[0] != sizeof(float) : !has_row_operand(api_, *src, *node.node))
            return false;
    }
    return true;
}

bool HostFfn::has_table(const abi::Tensor *node, std::size_t operand) const { return operand == 1 && is_add_id(api_, node); }

void HostFfn::fetch(const ExpertChain &chain, const EventRows &rows) {
    operands_.clear();
    result_.clear();
    for (const ChainNode &node : chain.nodes) {
        if (node.is_view) continue;
        const std::size_t n_operands = node.stored != nullptr || is_add_id(api_, node.node) ? 2 : std::size(node.node->src);
        for (std::size_t i = node.stored != nullptr ? 1 : 0; i < n_operands; i++) {
            const abi::Tensor *src = node.node->src[i];
            if (src == nullptr) continue;
            if (has_table(node.node, i)) {
                operands_.fetch_table(*src, rows);
            } else if (chain.maker_of(src) < 0) {
                operands_.fetch(*src);
            }
        }
    }
}

abi::Status HostFfn::compute(const ExpertChain &chain, const Routing &routing, const EventRows &wave, const HostSlabs &slabs) {
    build(chain, routing, wave, slabs);
    const abi::Status status = graph_.compute(nodes_);
    const Block &last = blocks_.back();
    if (status == abi::Status::success) result_.insert(result_.end(), last.data, last.data + static_cast<std::size_t>(last.ne0) * wave.rows.size());
    return status;
}

std::size_t HostFfn::bytes_per_row(const ExpertChain &chain) {
    std::size_t n_floats = 0;
    for (const ChainNode &node : chain.nodes) {
        if (!node.is_view) n_floats += static_cast<std::size_t>(node.node->ne[0] + (node.stored != nullptr ? node.node->src[1]->ne[0] : 0));
    }
    return n_floats * sizeof(float);
}

void HostFfn::build(const ExpertChain &chain, const Routing &routing, const EventRows &rows, const HostSlabs &slabs) {
    tensors_.clear();
    nodes_.clear();
    operands_.take_again();
    const std::size_t n_rows = rows.rows.size();
    zeros_.assign(n_rows, 0);
    counting_.resize(n_rows);
    std::iota(counting_.begin(), counting_.end(), 0);
    allot_blocks(chain, n_rows);
    for (std::size_t index = 0; index < chain.nodes.size(); index++) {
        if (chain.nodes[index].is_view) continue;
        if (chain.nodes[index].stored != nullptr) {
            add_matmul(chain, index, routing, rows, slabs);
        } else {
            add_elementwise(chain, index, routing, rows);
        }
    }
}

void HostFfn::allot_blocks(const ExpertChain &chain, std::size_t n_rows) {
    blocks_.assign(chain.nodes.size(), {});
    std::size_t n_floats = 0;
    for (std::size_t index = 0; index < chain.nodes.size(); index++) {
        if (!chain.nodes[index].is_view) blocks_[index].ne0 = chain.nodes[index].node->ne[0];
        n_floats += static_cast<std::size_t>(blocks_[index].ne0) * n_rows;
    }
    if (scratch_.size() < n_floats) scratch_.resize(n_floats);
    float *next = scratch_.data();
    for (Block &block : blocks_) {
        block.data = next;
        next += static_cast<std::size_t>(block.ne0) * n_rows;
    }
}

abi::Tensor *HostFfn::keep(const abi::Tensor &tensor) {
    tensors_.push_back(tensor);
    return &tensors_.back();
}

abi::Tensor HostFfn::operand(const ExpertChain &chain, const abi::Tensor &src, const Routing &routing, const EventRows &rows) {
    const int maker = chain.maker_of(&src);
    if (maker < 0) return operands_.rows_of(src, routing, rows);
    const auto made = static_cast<std::size_t>(maker);
    const std::ptrdiff_t shift = shift_of_view(src, *chain.nodes[made].node);
    const std::size_t row_bytes = static_cast<std::size_t>(blocks_[made].ne0) * sizeof(float);
    return rows_tensor(src.ne[0], rows.rows.size(), row_bytes, blocks_[made].data + shift / static_cast<std::ptrdiff_t>(sizeof(float)));
}

// one call per expert, from its slab wherever the host has it
void HostFfn::add_matmul(const ExpertChain &chain, std::size_t index, const Routing &routing, const EventRows &rows, const HostSlabs &slabs) {
    const ChainNode &from = chain.nodes[index];
    const abi::Tensor all_input = operand(chain, *from.node->src[1], routing, rows);
    const std::size_t out_bytes = static_cast<std::size_t>(from.node->ne[0]) * sizeof(float);
    const auto tensor = static_cast<std::size_t>(slabs.index_of(*from.stored));
    for (const ExpertRows &expert : rows.experts) {
        abi::Tensor weight = from.stored->shape;
        weight.ne[2] = 1;
        weight.nb[3] = weight.nb[2];
        weight.data = const_cast<std::uint8_t *>(slabs.slab(tensor, expert.expert));
        std::uint8_t *first = static_cast<std::uint8_t *>(all_input.data) + expert.begin * all_input.nb[2];
        const abi::Tensor input = rows_tensor(all_input.ne[0], expert.n, all_input.nb[2], first);
        abi::Tensor call = *from.node;
        const abi::Tensor shape =
            rows_tensor(from.node->ne[0], expert.n, out_bytes, blocks_[index].data + expert.begin * static_cast<std::size_t>(from.node->ne[0]));
        std::copy(std::begin(shape.ne), std::end(shape.ne), call.ne);
        std::copy(std::begin(shape.nb), std::end(shape.nb), call.nb);
        call.data = shape.data;
        call.buffer = nullptr;
        call.view_src = nullptr;
        std::fill(std::begin(call.src), std::end(call.src), nullptr);
        call.src[0] = keep(weight);
        call.src[1] = keep(input);
        call.src[2] = keep(ids_tensor(expert.n, zeros_.data()));
        nodes_.push_back(keep(call));
    }
}

void HostFfn::add_elementwise(const ExpertChain &chain, std::size_t index, const Routing &routing, const EventRows &rows) {
    const abi::Tensor *from = chain.nodes[index].node;
    abi::Tensor node = *from;
    const abi::Tensor shape = rows_tensor(from->ne[0], rows.rows.size(), static_cast<std::size_t>(from->ne[0]) * sizeof(float), blocks_[index].data);
    std::copy(std::begin(shape.ne), std::end(shape.ne), node.ne);
    std::copy(std::begin(shape.nb), std::end(shape.nb), node.nb);
    node.data = shape.data;
    node.buffer = nullptr;
    node.view_src = nullptr;
    for (std::size_t i = 0; i < std::size(node.src); i++) {
        if (from->src[i] == nullptr) continue;
        if (has_table(from, i)) {
            node.src[i] = keep(operands_.expert_rows_of(*from->src[i], rows, routing));
        } else if (is_add_id(api_, from) && i == 2) {
            node.src[i] = keep(ids_tensor(rows.rows.size(), counting_.data()));
        } else {
            node.src[i] = keep(operand(chain, *from->src[i], routing, rows));
        }
    }
    nodes_.push_back(keep(node));
}

}  // namespace slotpool
