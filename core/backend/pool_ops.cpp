// Which nodes of a graph the pool device takes. Asked when a graph is built: ids are unknown, so shape alone decides.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "backend/dense_weights.h"
#include "backend/layer_device.h"
#include "backend/pool_device.h"
#include "backend/registry.h"
#include "dispatch/graph_facts.h"
#include "dispatch/prefill.h"
#include "store/store_buffer.h"

namespace slotpool {
namespace {

enum class Kind : char { unknown = 0, other, none, matmul, view, elementwise, lookup };

constexpr std::array<const char *, 4> kViews = {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"};
// what stands between the expert matmuls of a layer: activations, biases, clamps, scales
constexpr std::array<const char *, 8> kElementwise = {"GLU", "UNARY", "CLAMP", "SCALE", "SQR", "MUL", "ADD", "ADD_ID"};
constexpr int kMaxOps = 512;
constexpr int kMaxHops = 12;
constexpr int kAllocatingTokens = 2;  // of the only ubatches that a plan with a bypass takes

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

const StoredTensor *stored_weight(const abi::Tensor *op) {
    const StoredTensor *stored = stored_tensor(op->src[0]);
    return stored != nullptr && op->src[2]->type == abi::kTypeI32 ? stored : nullptr;
}

// Of a plan that leaves it to the layer: the device of the layer's router, or, when that lies on the host, of another weight of the layer.
std::string home_of(const StoredTensor &stored, const abi::Tensor *op) {
    const std::string known = stored.session->device_of(stored.planned->group);
    if (!known.empty()) return known;
    const std::string found = layer_device(registry_api(), op, stored.session->plan.groups[static_cast<std::size_t>(stored.planned->group)].layer);
    if (!found.empty()) stored.session->set_device(stored.planned->group, found);
    const PlannedDevice *device = stored.session->plan.find_device(found);
    if (found == "CPU") stored.session->switch_off(stored.planned->group, "its layer lives on the CPU");
    if (device != nullptr && device->slots == 0) stored.session->switch_off(stored.planned->group, "0 slots asked for on " + found);
    if (!found.empty() && found != "CPU" && device == nullptr) {
        stored.session->switch_off(stored.planned->group, "its layer lives on " + found + ", where no slots are planned");
    }
    return found;
}

// Costs are measured all the time, but a graph must get one answer however often it is asked.
class StreamAnswers {
   public:
    bool of(const StoredTensor &stored, const MatmulShape &shape) {
        const Session &session = *stored.session;
        const auto group = static_cast<std::size_t>(stored.planned->group);
        if (session_ != &session || graph_ != asked_graph().number || n_tokens_ != shape.n_tokens) answers_.assign(session.plan.groups.size(), -1);
        session_ = &session;
        graph_ = asked_graph().number;
        n_tokens_ = shape.n_tokens;
        if (answers_[group] < 0) answers_[group] = does_stream(session.plan.prefill, shape, costs(*stored.session, stored.planned->group)) ? 1 : 0;
        return answers_[group] == 1;
    }

   private:
    static const DeviceMemory *costs(Session &session, int group) {
        const int device = session.page.find_device(session.device_of(group));
        return device < 0 ? nullptr : &session.page.device(device);
    }

    const Session *session_ = nullptr;  // compared, never followed
    std::uint64_t graph_ = 0;
    std::int64_t n_tokens_ = 0;
    std::vector<int> answers_;  // by group; -1: not asked yet
};

// Whether an ubatch of so many tokens passes through the device beside the slots.
bool is_streamed(PoolDevice &device, const StoredTensor &stored, const abi::Tensor *op, std::int64_t n_tokens) {
    static thread_local StreamAnswers answers;
    const Plan &plan = stored.session->plan;
    const PlannedGroup &group = plan.groups[static_cast<std::size_t>(stored.planned->group)];
    const int n_slots = stored.session->slots_of(stored.planned->group);
    if (plan.prefill == Prefill::bypass || stored.is_on_disk() || device.is_cpu() || n_slots == 0) return false;
    abi::Tensor asked = *op;
    asked.ne[2] = n_tokens;
    const bool is_offloaded = registry_api().dev_offload_op(device.pooled(), &asked);
    return answers.of(stored, {n_tokens, op->src[2]->ne[0], group.n_expert, n_slots, is_offloaded});
}

bool fits_slots(const StoredTensor &stored, std::int64_t n_rows) {
    const PlannedGroup &group = stored.session->plan.groups[static_cast<std::size_t>(stored.planned->group)];
    return std::min<std::int64_t>(n_rows, group.n_expert) <= stored.session->usable_slots(stored.planned->group);
}

// A prompt without outputs leaves its last layer no rows. There is nothing to serve, and a scheduler whose reserved graphs had nothing for us
// has no memory of ours for it either: not even for no rows.
bool is_served(PoolDevice &device, const StoredTensor &stored, const abi::Tensor *op) {
    if (stored.is_on_disk()) return true;  // nobody else can read it: every shape
    if (stored.session->plan.is_bypassed && op->src[2]->ne[1] != kAllocatingTokens) return false;
    const std::int64_t n_rows = op->src[2]->ne[0] * op->src[2]->ne[1];
    return n_rows > 0 && (fits_slots(stored, n_rows) || is_streamed(device, stored, op, op->src[2]->ne[1]));
}

bool is_on_disk(const abi::Tensor *weight) { return weight != nullptr && weight->buffer != nullptr && weight->buffer->buft == disk_buffer_type(); }

bool is_in_store(const abi::Tensor *weight) { return weight != nullptr && weight->buffer != nullptr && is_store_type(weight->buffer->buft); }

// The expert matmul that `at` is made from by elementwise nodes and views alone, through their first operands; nullptr when there is none.
const abi::Tensor *matmul_behind(const abi::Tensor *at) {
    for (int hops = 0; at != nullptr && hops < kMaxHops; hops++, at = at->src[0]) {
        const Kind kind = kind_of(at->op);
        if (kind == Kind::matmul) return at;
        if (kind != Kind::view && kind != Kind::elementwise) return nullptr;
    }
    return nullptr;
}

bool is_last_of_layer(const StoredTensor &stored) { return stored.planned->role.rfind("down", 0) == 0; }

// the token embedding is the one node whose rows are the tokens of the ubatch, in every architecture
bool is_token_embedding(const abi::Tensor *op) { return op->src[0] != nullptr && std::strcmp(op->src[0]->name, "token_embd.weight") == 0; }

void note_lookup(const abi::Tensor *op) {
    GraphFacts &facts = asked_graph().asking();
    if (!is_token_embedding(op)) return;
    if (facts.token_embedding != op) facts = {};
    facts.token_embedding = op;
    facts.n_tokens = op->ne[1];
}

// What has no rows follows its ubatch.
void note_matmul(PoolDevice &device, const abi::Tensor *op, const StoredTensor &stored, bool is_taken) {
    GraphFacts &facts = asked_graph().asking();
    const abi::Tensor *ids = op->src[2];
    const auto tensor = static_cast<std::size_t>(stored.planned - stored.session->plan.tensors.data());
    if (facts.is_of_another_graph(stored.session, tensor, op, ids->ne[1])) facts = {};
    if (facts.session != stored.session) facts.matmuls.assign(stored.session->plan.tensors.size(), {});
    facts.matmuls[tensor] = {op, ids->ne[1]};
    facts.n_tokens = std::max(facts.n_tokens, ids->ne[1]);
    if (is_taken) facts.taken.push_back(op);
    const bool follows = fits_slots(stored, ids->ne[0] * facts.n_tokens) || is_streamed(device, stored, op, facts.n_tokens);
    const bool is_refused = ids->ne[1] > 0 ? !is_taken : !follows;
    facts.answer(stored.session, stored.session->plan.groups.size(), static_cast<std::size_t>(stored.planned->group), is_refused && !is_taken);
}

// One question of the scheduler to one pool device.
class Question {
   public:
    Question(PoolDevice &device, const abi::Tensor *op) : device_(device), op_(op), kind_(kind_of(op->op)) {}

    bool is_taken() const {
        switch (kind_) {
            case Kind::lookup:
                note_lookup(op_);
                return false;
            // the weight itself, for a scheduler that looks for a home for every leaf; on disk there is none but here
            case Kind::none:
                return is_on_disk(op_);
            case Kind::matmul:
                return matmul() && registry_api().dev_supports_op(device_.pooled(), op_);
            case Kind::elementwise:
                return is_between_matmuls() && registry_api().dev_supports_op(device_.pooled(), op_);
            default:
                return false;
        }
    }

   private:
    // Layers that live on the CPU, of a plan that leaves it to the layer, have no slots, even where another plan's are on the CPU.
    bool is_home(const StoredTensor &stored, const abi::Tensor *matmul) const {
        if (home_of(stored, matmul) != device_.pooled_name()) return false;
        return !device_.is_cpu() || stored.session->plan.groups[static_cast<std::size_t>(stored.planned->group)].device == "CPU";
    }

    bool is_ours(const StoredTensor *stored, const abi::Tensor *matmul) const {
        return stored != nullptr && is_home(*stored, matmul) && is_served(device_, *stored, matmul);
    }

    bool matmul() const {
        const StoredTensor *stored = stored_weight(op_);
        if (stored == nullptr) return adapter();
        if (!is_home(*stored, op_)) return false;
        const bool is_taken = is_served(device_, *stored, op_);
        note_matmul(device_, op_, *stored, is_taken);
        return is_taken;
    }

    // An adapter's tensor lies in the buffer type of the weight it adapts. One on the layer's last weight reads what its rows are made from.
    bool adapter() const {
        const abi::Tensor *matmul = is_in_store(op_->src[0]) ? matmul_behind(op_->src[1]) : nullptr;
        const StoredTensor *read = matmul == nullptr ? nullptr : stored_weight(matmul);
        if (read != nullptr) read->session->set_read_between(read->planned->group);
        return is_on_disk(op_->src[0]);
    }

    // True for an elementwise node whose first operand comes from an expert matmul of ours that is not the layer's last:
    // taking these keeps a layer's gate, up, activation and down in one split. A bias that goes with its experts is added here too.
    bool is_between_matmuls() const {
        const abi::Tensor *matmul = matmul_behind(op_->src[0]);
        const StoredTensor *stored = matmul == nullptr ? nullptr : stored_weight(matmul);
        return stored != nullptr && is_ours(stored, matmul) && (!is_last_of_layer(*stored) || stored_bias(op_->src[1]) != nullptr);
    }

    PoolDevice &device_;
    const abi::Tensor *op_;
    Kind kind_;
};

}  // namespace

bool PoolDevice::takes(const abi::Tensor *op) {
    if (pooled() == nullptr) return false;
    if (is_cpu()) put_on_huge_pages(op);
    return Question(*this, op).is_taken();
}

}  // namespace slotpool
