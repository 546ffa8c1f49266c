#include "dispatch/dispatch.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "dispatch/allotment.h"
#include "store/store_buffer.h"

namespace slotpool {
namespace {

const abi::Tensor *root_of(const abi::Tensor *tensor) { return tensor->view_src != nullptr ? tensor->view_src : tensor; }

abi::Tensor row_ids_tensor(const abi::Tensor &ids, const std::vector<std::int32_t> &slot_ids) {
    abi::Tensor tensor{};
    tensor.type = abi::kTypeI32;
    tensor.ne[0] = ids.ne[0];
    tensor.ne[1] = ids.ne[1];
    tensor.ne[2] = tensor.ne[3] = 1;
    tensor.nb[0] = sizeof(std::int32_t);
    tensor.nb[1] = tensor.nb[0] * static_cast<std::size_t>(tensor.ne[0]);
    tensor.nb[2] = tensor.nb[3] = tensor.nb[1] * static_cast<std::size_t>(tensor.ne[1]);
    tensor.data = const_cast<std::int32_t *>(slot_ids.data());
    return tensor;
}

}  // namespace

Dispatch::Dispatch(const abi::Api &api, abi::Device *device, int op_mul_mat_id)
    : api_(api), device_(device), op_mul_mat_id_(op_mul_mat_id), device_backend_(api.dev_init(device, nullptr)), graph_(api, device_backend_) {}

Dispatch::~Dispatch() {
    parts_.reset();
    pools_.clear();
    if (session_) session_->give_back(taken_);
    if (device_backend_ != nullptr) api_.backend_free(device_backend_);
}

void Dispatch::adopt(std::shared_ptr<Session> session) {
    session_ = std::move(session);
    counts_ = session_->add_context();
    source_ = make_slab_source(*session_);
    pools_.resize(session_->plan.groups.size());
    is_off_.assign(pools_.size(), false);
    refused_in_.assign(pools_.size(), 0);
    for (std::size_t group = 0; group < std::min(waiting_.size(), pools_.size()); group++) {
        counts_->groups[group].refused.add(static_cast<std::uint64_t>(waiting_[group]));
        if (group < graph_of_ubatch_.is_refused.size() && graph_of_ubatch_.is_refused[group]) refused_in_[group] = ubatch_;
    }
}

void Dispatch::begin_ubatch() {
    ubatch_++;
    GraphFacts facts = take_graph_facts();
    // a context has one model: a model's graph without our tensors is another context's, and ours is the one we had
    const bool is_ours = !session_ || facts.session == session_.get() || facts.token_embedding == nullptr;
    is_settled_ = !facts.was_asked || !is_ours;
    if (!is_settled_) graph_before_ = std::exchange(graph_of_ubatch_, {});
    // a graph without tokens (a shift of the KV cache) refuses nothing
    if (!is_settled_ && facts.token_embedding != nullptr) graph_of_ubatch_ = std::move(facts);
    count_refusals(1);
}

// Another context may have reserved its graphs since this one built its own: the first expert matmul tells whose the facts are.
void Dispatch::settle(const abi::Tensor *node) {
    if (is_settled_) return;
    is_settled_ = true;
    const std::vector<const void *> &taken = graph_of_ubatch_.taken;
    if (std::find(taken.begin(), taken.end(), node) != taken.end()) return;
    count_refusals(-1);
    graph_of_ubatch_ = std::move(graph_before_);
    count_refusals(1);
}

// Of a context that has no session yet the refusals wait in `waiting_` until its first expert matmul says whose it is.
void Dispatch::count_refusals(int times) {
    const std::vector<bool> &refused = graph_of_ubatch_.is_refused;
    if (!session_) waiting_.resize(std::max(waiting_.size(), refused.size()), 0);
    for (std::size_t group = 0; group < refused.size(); group++) {
        if (!refused[group]) continue;
        if (!session_) waiting_[group] += times;
        if (!session_) continue;
        counts_->groups[group].refused.add(static_cast<std::uint64_t>(static_cast<std::int64_t>(times)));
        refused_in_[group] = times > 0 ? ubatch_ : 0;
    }
}

abi::Status Dispatch::compute(abi::Graph *graph) {
    const int n_nodes = api_.graph_n_nodes(graph);
    pending_.clear();
    clones_.clear();
    if (parts_) parts_->reset();
    for (int i = 0; i < n_nodes; i++) {
        abi::Tensor *node = api_.graph_node(graph, i);
        const StoredTensor *stored = node->op == op_mul_mat_id_ ? stored_tensor(node->src[0]) : nullptr;
        if (stored == nullptr) {
            add(node);
            continue;
        }
        const abi::Status status = add_expert_matmul(node, *stored);
        if (status != abi::Status::success) return status;
    }
    return flush();
}

abi::Status Dispatch::add_expert_matmul(abi::Tensor *node, const StoredTensor &stored) {
    const abi::Tensor *ids = node->src[2];
    settle(node);
    LayerPool *pool = layer_pool(stored);
    const auto group = static_cast<std::size_t>(stored.planned->group);
    if (pool == nullptr && stored.is_on_disk()) return abi::Status::failed;  // nobody else can read it; the session knows why
    const bool is_too_large = pool != nullptr && is_refused(group, ids->ne[0], ids->ne[1]);
    if (is_too_large && !stored.is_on_disk()) refuse(group);
    if (pool == nullptr || (is_too_large && !stored.is_on_disk()) || ids->ne[0] * ids->ne[1] == 0) {
        add(node);
        return abi::Status::success;
    }
    return serve(node, stored, *pool, is_too_large);
}

abi::Status Dispatch::serve(abi::Tensor *node, const StoredTensor &stored, LayerPool &pool, bool is_passing) {
    const abi::Tensor *ids = node->src[2];
    // the ids must have been computed before they are read, and an event's slots stay as they are until it is computed
    if (is_pending(ids)) {
        if (const abi::Status status = flush(); status != abi::Status::success) return status;
    }
    routing_.read(*ids);
    if (pool.begins_event(stored, routing_, ubatch_)) {
        if (const abi::Status status = flush(); status != abi::Status::success) return status;
    }
    std::string error;
    if (!pool.serve(stored, routing_, ubatch_, phase(routing_.n_tokens), is_passing, error)) return fail(pool, error);
    const auto index = static_cast<std::size_t>(pool.index_of(stored));
    if (!pool.is_in_slots(index)) {
        if (stored.is_on_disk()) return compute_in_parts(node, index, pool);
        add(node);
        return abi::Status::success;
    }
    if (!pool.is_at_stride(index)) {
        if (!pool.has_a_row_each()) return compute_in_parts(node, index, pool);
        parts_->hand_over(*node, index, pool, routing_, pending_);
        return abi::Status::success;
    }
    abi::Tensor *pooled = clone(*node);
    pooled->src[0] = pool.slot_tensor(index);
    pooled->src[2] = clone(row_ids_tensor(*ids, pool.slot_ids()));
    add(pooled);
    return abi::Status::success;
}

abi::Status Dispatch::compute_in_parts(abi::Tensor *node, std::size_t index, LayerPool &pool) {
    if (const abi::Status status = flush(); status != abi::Status::success) return status;
    std::string error;
    const abi::Status status = parts_->compute(*node, index, pool, routing_, error);
    if (status == abi::Status::success) return status;
    fail(pool, error);
    return status;  // aborted is not failed
}

// The request fails; slots whose bytes did not come are free again, and the next request begins anew.
abi::Status Dispatch::fail(LayerPool &pool, const std::string &error) {
    if (!error.empty()) session_->fail(error);
    pending_.clear();
    parts_->reset();
    parts_->stop_stream();
    pool.forget_event();
    return abi::Status::failed;
}

// The session is the context's own, and what lies on disk is what was loaded. When not, the session knows why.
bool Dispatch::may_serve(const StoredTensor &stored) {
    if (!session_) adopt(stored.session->shared_from_this());
    std::string reason;
    if (stored.session != session_.get()) {
        reason = "Expected a context of one model, found experts on disk of another in it - at " + stored.planned->name +
                 ". Use a context of its own for each model";
    } else if (stored.is_on_disk()) {
        reason = session_->distrust();
    }
    if (stored.is_on_disk() && !reason.empty()) stored.session->fail(reason);
    return reason.empty();
}

LayerPool *Dispatch::layer_pool(const StoredTensor &stored) {
    if (!may_serve(stored)) return nullptr;
    const auto group = static_cast<std::size_t>(stored.planned->group);
    // another model may have taken the place of the one that the pool was filled from
    if (pools_[group] && !pools_[group]->holds(stored)) {
        parts_->stop_stream();
        pools_[group].reset();
    }
    if (!pools_[group] && !is_off_[group]) make_pool(group, stored.is_on_disk());
    return pools_[group].get();
}

void Dispatch::make_pool(std::size_t group, bool is_on_disk) {
    std::string error;
    if (slots_.empty() && !allot_slots(error)) return session_->fail(error);
    if (pools_[group]) return;
    pools_[group] = LayerPool::make(api_, device_, *session_, static_cast<int>(group), slots_[group], *source_, counts_->groups[group], error);
    if (pools_[group]) return;
    if (is_on_disk) return session_->fail(error);  // nobody else can read a disk: the next request tries again
    session_->switch_off(static_cast<int>(group), error);
    is_off_[group] = true;
}

// Slots are allocated at the first compute, when everything else exists; of experts on disk as many as fit then, all at once and by one
// context at a time, so that the next one sees what was promised.
bool Dispatch::allot_slots(std::string &error) {
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    const std::optional<Allotment> allotment = allot(*session_, *source_, error);
    if (!allotment) return false;
    slots_ = allotment->slots;
    parts_ = std::make_unique<PartMatmul>(api_, device_backend_, *source_, allotment->ring_bytes);
    if (!session_->files) return true;
    if (!parts_->make_ring(error) || !make_all_pools(error)) {
        for (auto &pool : pools_) pool.reset();
        parts_.reset();
        slots_.clear();
        return false;
    }
    taken_ = allotment->taken;
    session_->take(taken_);
    session_->set_slots(slots_);
    return true;
}

bool Dispatch::make_all_pools(std::string &error) {
    for (std::size_t group = 0; group < pools_.size(); group++) {
        if (session_->tensors_of(static_cast<int>(group)).empty()) continue;
        pools_[group] = LayerPool::make(api_, device_, *session_, static_cast<int>(group), slots_[group], *source_, counts_->groups[group], error);
        if (!pools_[group]) return false;
    }
    return true;
}

// A prompt's last layer arrives with the output rows only, and would look like generation: the size of its ubatch decides.
bool Dispatch::is_refused(std::size_t group, std::int64_t n_used, std::int64_t n_tokens) const {
    const PlannedGroup &planned = session_->plan.groups[group];
    const std::int64_t tokens = std::max(graph_of_ubatch_.n_tokens, n_tokens);
    return std::min<std::int64_t>(n_used * tokens, planned.n_expert) > slots_[group];
}

void Dispatch::refuse(std::size_t group) {
    if (refused_in_[group] != ubatch_) counts_->groups[group].refused.add(1);
    refused_in_[group] = ubatch_;
}

Phase Dispatch::phase(std::int64_t n_tokens) {
    return std::max(graph_of_ubatch_.n_tokens, n_tokens) > kGenerationTokens ? Phase::prompt : Phase::generation;
}

bool Dispatch::is_pending(const abi::Tensor *tensor) const {
    const abi::Tensor *root = root_of(tensor);
    return std::any_of(pending_.begin(), pending_.end(), [&](const abi::Tensor *node) { return root_of(node)->data == root->data; });
}

void Dispatch::add(abi::Tensor *node) { pending_.push_back(node); }

abi::Status Dispatch::flush() {
    const abi::Status status = graph_.compute(pending_);
    pending_.clear();
    if (parts_) parts_->reset();
    return status;
}

abi::Tensor *Dispatch::clone(const abi::Tensor &tensor) {
    clones_.push_back(tensor);
    return &clones_.back();
}

}  // namespace slotpool
