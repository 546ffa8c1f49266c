// Which nodes of a graph the pool device takes. Asked when a graph is built: ids are unknown, so shape alone decides.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "backend/registry.h"
#include "dispatch/graph_facts.h"
#include "store/store_buffer.h"

namespace slotpool {
namespace {

enum class Kind : char { unknown = 0, other, none, matmul, view, elementwise, lookup };

constexpr std::array<const char *, 4> kViews = {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"};
// what stands between the expert matmuls of a layer: activations, biases, clamps, scales
constexpr std::array<const char *, 8> kElementwise = {"GLU", "UNARY", "CLAMP", "SCALE", "SQR", "MUL", "ADD", "ADD_ID"};
constexpr int kMaxOps = 512;
constexpr int kMaxHops = 12;

template <class Names>
bool is_one_of(const char *name, const Names &names) {
    return std::any_of(names.begin(), names.end(), [&](const char *candidate) { return std::strcmp(name, candidate) == 0; });
}

Kind classify(int op) {
    const char *name = registry_api().op_name(op);
    if (std::strcmp(name, "MUL_MAT_ID") == 0) return Kind::matmul;
    if (std::strcmp(name, "GET_ROWS") == 0) return Kind::lookup;
    if (std::strcmp(name, "NONE") == 0) return Kind::none;
    if (is_one_of(name, kViews)) return Kind::view;
    return is_one_of(name, kElementwise) ? Kind::elementwise : Kind::other;
}

// op numbers move between versions: each is looked up by name once, and only for ops that a real graph contains
Kind kind_of(int op) {
    static std::array<std::atomic<Kind>, kMaxOps> known{};
    if (op < 0 || op >= kMaxOps) return Kind::other;
    std::atomic<Kind> &kind = known[static_cast<std::size_t>(op)];
    if (kind.load(std::memory_order_relaxed) == Kind::unknown) kind.store(classify(op), std::memory_order_relaxed);
    return kind.load(std::memory_order_relaxed);
}

const StoredTensor *pooled_weight(const abi::Tensor *op) {
    const StoredTensor *stored = stored_tensor(op->src[0]);
    if (stored == nullptr) return nullptr;
    const abi::Tensor *ids = op->src[2];
    if (stored->is_on_disk()) return ids->type == abi::kTypeI32 ? stored : nullptr;  // nobody else can: every shape
    const PlannedGroup &group = stored->session->plan.groups[static_cast<std::size_t>(stored->planned->group)];
    const bool fits = std::min<std::int64_t>(ids->ne[0] * ids->ne[1], group.n_expert) <= group.slots;
    return fits && ids->type == abi::kTypeI32 ? stored : nullptr;
}

bool is_on_disk(const abi::Tensor *weight) { return weight != nullptr && weight->buffer != nullptr && weight->buffer->buft == disk_buffer_type(); }

bool is_last_of_layer(const StoredTensor &stored) { return stored.planned->role.rfind("down", 0) == 0; }

// True for an elementwise node whose first operand comes from an expert matmul of ours that is not the layer's last:
// taking these keeps a layer's gate, up, activation and down in one split.
bool is_between_matmuls(const abi::Tensor *op) {
    const abi::Tensor *at = op->src[0];
    for (int hops = 0; at != nullptr && hops < kMaxHops; hops++) {
        const Kind kind = kind_of(at->op);
        if (kind == Kind::matmul) {
            const StoredTensor *stored = pooled_weight(at);
            return stored != nullptr && !is_last_of_layer(*stored);
        }
        if (kind == Kind::other || kind == Kind::none || kind == Kind::lookup) return false;
        at = at->src[0];
    }
    return false;
}

// the token embedding is the one node whose rows are the tokens of the ubatch, in every architecture
bool is_token_embedding(const abi::Tensor *op) { return op->src[0] != nullptr && std::strcmp(op->src[0]->name, "token_embd.weight") == 0; }

void note(const abi::Tensor *op, Kind kind) {
    GraphFacts &facts = graph_facts();
    if (kind == Kind::lookup && is_token_embedding(op)) {
        if (facts.token_embedding != op) facts = {};
        facts.token_embedding = op;
        facts.n_tokens = op->ne[1];
    }
    facts.was_asked = true;
    if (kind != Kind::matmul) return;
    if (const StoredTensor *stored = stored_tensor(op->src[0])) {
        if (pooled_weight(op) != nullptr) facts.taken.push_back(op);
        facts.answer(stored->session, stored->session->plan.groups.size(), static_cast<std::size_t>(stored->planned->group),
                     pooled_weight(op) == nullptr);
    }
}

}  // namespace

bool pool_takes(const abi::Tensor *op) {
    const Kind kind = kind_of(op->op);
    note(op, kind);
    // the weight itself, for a scheduler that looks for a home for every leaf; on disk there is none but here
    if (kind == Kind::none) return is_on_disk(op);
    // an adapter's tensors lie in the buffer type of the weight they adapt, as ordinary ones
    if (kind == Kind::matmul && pooled_weight(op) == nullptr && !is_on_disk(op->src[0])) return false;
    if (kind == Kind::elementwise && !is_between_matmuls(op)) return false;
    if (kind != Kind::matmul && kind != Kind::elementwise) return false;
    return registry_api().dev_supports_op(pooled_device(), op);
}

}  // namespace slotpool
