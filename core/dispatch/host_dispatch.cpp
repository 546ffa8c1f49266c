#include "dispatch/host_dispatch.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "dispatch/allotment.h"
#include "dispatch/backend_settings.h"
#include "dispatch/pool_damage.h"
#include "stats/stopwatch.h"
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

HostDispatch::HostDispatch(const Engine &engine, Context &context)
    : engine_(engine), api_(engine.api), context_(context), backend_(api_.dev_init(engine.device, nullptr)), graph_(api_, backend_) {}

HostDispatch::~HostDispatch() {
    parts_.reset();
    pools_.clear();
    if (context_.session()) context_.session()->give_back(taken_, context_.session()->ram_device());
    if (backend_ != nullptr) api_.backend_free(backend_);
}

void HostDispatch::set_n_threads(int n_threads) { set_backend_threads(api_, backend_, n_threads); }

void HostDispatch::set_abort_callback(abi::AbortCallback callback, void *data) { set_backend_abort(api_, backend_, callback, data); }

abi::Status HostDispatch::compute(abi::Graph *graph) {
    const int n_nodes = api_.graph_n_nodes(graph);
    pending_.clear();
    clones_.clear();
    if (parts_) parts_->reset();
    for (int i = 0; i < n_nodes; i++) {
        abi::Tensor *node = api_.graph_node(graph, i);
        const StoredTensor *stored = node->op == engine_.op_mul_mat_id ? stored_tensor(node->src[0]) : nullptr;
        if (stored == nullptr) {
            add(node);
            continue;
        }
        const abi::Status status = add_expert_matmul(node, *stored);
        if (status != abi::Status::success) return status;
    }
    return flush();
}

abi::Status HostDispatch::add_expert_matmul(abi::Tensor *node, const StoredTensor &stored) {
    const abi::Tensor *ids = node->src[2];
    context_.settle(node);
    LayerPool *pool = layer_pool(stored);
    const auto group = static_cast<std::size_t>(stored.planned->group);
    if (pool == nullptr && stored.is_on_disk()) return abi::Status::failed;  // nobody else can read it; the session knows why
    const bool is_large = pool != nullptr && is_too_large(group, ids->ne[0], ids->ne[1]);
    if (is_large && !stored.is_on_disk()) context_.refuse(group);
    if (pool == nullptr || (is_large && !stored.is_on_disk()) || ids->ne[0] * ids->ne[1] == 0) {
        add(node);
        return abi::Status::success;
    }
    return serve(node, stored, *pool, is_large);
}

abi::Status HostDispatch::serve(abi::Tensor *node, const StoredTensor &stored, LayerPool &pool, bool is_passing) {
    const abi::Tensor *ids = node->src[2];
    // the ids must have been computed before they are read, and an event's slots stay as they are until it is computed
    if (is_pending(ids)) {
        if (const abi::Status status = flush(); status != abi::Status::success) return status;
    }
    routing_.read(*ids);
    if (pool.begins_event(stored, routing_, context_.ubatch())) {
        if (const abi::Status status = flush(); status != abi::Status::success) return status;
    }
    std::string error;
    if (!pool.serve(stored, routing_, context_.ubatch(), context_.phase(routing_.n_tokens), is_passing, error)) return fail(pool, error);
    served_ = &pool;
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

abi::Status HostDispatch::compute_in_parts(abi::Tensor *node, std::size_t index, LayerPool &pool) {
    if (const abi::Status status = flush(); status != abi::Status::success) return status;
    std::string error;
    const Stopwatch compute;
    const abi::Status status = parts_->compute(*node, index, pool, routing_, error);
    pool.count_compute(compute.ns());
    if (status == abi::Status::success) return status;
    fail(pool, error);
    return status;  // aborted is not failed
}

// The request fails; slots whose bytes did not come are free again, and the next request begins anew.
abi::Status HostDispatch::fail(LayerPool &pool, const std::string &error) {
    if (!error.empty()) context_.session()->fail(error);
    pending_.clear();
    parts_->reset();
    parts_->stop_stream();
    pool.forget_event();
    return abi::Status::failed;
}

LayerPool *HostDispatch::layer_pool(const StoredTensor &stored) {
    if (!context_.may_serve(stored) || !context_.has_pools()) return nullptr;
    prepare();
    const auto group = static_cast<std::size_t>(stored.planned->group);
    // another model may have taken the place of the one that the pool was filled from
    if (pools_[group] && !pools_[group]->holds(stored)) {
        parts_->stop_stream();
        served_ = nullptr;
        pools_[group].reset();
    }
    if (!pools_[group] && !is_off_[group]) make_pool(group, stored.is_on_disk());
    return pools_[group].get();
}

// A context may learn its session from the first expert matmul.
void HostDispatch::prepare() {
    if (source_) return;
    const Session &session = *context_.session();
    source_ =
        make_slab_source(session, session.plan.is_repacked ? std::make_unique<Repacking>(api_, engine_.device, engine_.op_mul_mat_id) : nullptr);
    pools_.resize(session.plan.groups.size());
    is_off_.assign(pools_.size(), false);
}

void HostDispatch::make_pool(std::size_t group, bool is_on_disk) {
    std::string error;
    if (slots_.empty() && !allot_slots(error)) return context_.session()->fail(error);
    if (pools_[group]) return;
    if (make_layer_pool(group, error)) return;
    if (is_on_disk) return context_.session()->fail(error);  // nobody else can read a disk: the next request tries again
    context_.session()->switch_off(static_cast<int>(group), error);
    is_off_[group] = true;
}

// Slots are allocated at the first compute, when everything else exists; of experts on disk as many as fit then, all at once and by one
// context at a time, so that the next one sees what was promised.
bool HostDispatch::allot_slots(std::string &error) {
    const std::lock_guard<std::mutex> lock(one_allotment_at_a_time());
    const std::optional<Allotment> allotment = allot(*context_.session(), *source_, "CPU", error);
    if (!allotment) return false;
    slots_ = allotment->slots;
    parts_ = std::make_unique<PartMatmul>(api_, backend_, *source_, allotment->ring_bytes);
    if (!context_.session()->files) return true;
    if (!parts_->make_ring(error) || !make_all_pools(error)) {
        for (auto &pool : pools_) pool.reset();
        parts_.reset();
        slots_.clear();
        return false;
    }
    taken_ = allotment->taken;
    Session &session = *context_.session();
    session.take(taken_, session.ram_device());
    session.page.set_device(session.ram_device(), allotment->budget, allotment->available);
    for (std::size_t group = 0; group < slots_.size(); group++) {
        if (is_here(group)) session.set_slots(static_cast<int>(group), slots_[group]);
    }
    return true;
}

bool HostDispatch::make_all_pools(std::string &error) {
    for (std::size_t group = 0; group < pools_.size(); group++) {
        if (!is_here(group) || context_.session()->tensors_of(static_cast<int>(group)).empty()) continue;
        if (!make_layer_pool(group, error)) return false;
    }
    return true;
}

bool HostDispatch::make_layer_pool(std::size_t group, std::string &error) {
    Session &session = *context_.session();
    const auto number = static_cast<int>(group);
    pools_[group] = LayerPool::make(api_, engine_.device, session, number, slots_[group], *source_, context_.counts(group), error);
    if (!pools_[group]) return false;
    for (const auto &tensor : session.tensors_of(number)) {
        if (source_->layout(*tensor) != nullptr) session.set_repacked(*tensor);
    }
    pools_[group]->count_heat(session.add_heat(number));
    pools_[group]->warm(warm_set(session.plan, session.plan.groups[group], slots_[group]));
    return true;
}

// with devices, layers that live on none are the CPU's
bool HostDispatch::is_here(std::size_t group) const { return context_.session()->device_of(static_cast<int>(group)) == "CPU"; }

bool HostDispatch::is_too_large(std::size_t group, std::int64_t n_used, std::int64_t n_tokens) const {
    const PlannedGroup &planned = context_.session()->plan.groups[group];
    return std::min<std::int64_t>(n_used * context_.n_tokens(n_tokens), planned.n_expert) >
           context_.session()->plan.usable_slots(planned, slots_[group]);
}

bool HostDispatch::is_pending(const abi::Tensor *tensor) const {
    const abi::Tensor *root = root_of(tensor);
    return std::any_of(pending_.begin(), pending_.end(), [&](const abi::Tensor *node) { return root_of(node)->data == root->data; });
}

void HostDispatch::add(abi::Tensor *node) { pending_.push_back(node); }

abi::Status HostDispatch::flush() {
    const Stopwatch compute;
    const abi::Status status = graph_.compute(pending_);
    if (served_ != nullptr && !pending_.empty()) served_->count_compute(compute.ns());
    served_ = nullptr;
    pending_.clear();
    if (parts_) parts_->reset();
    return status;
}

abi::Tensor *HostDispatch::clone(const abi::Tensor &tensor) {
    clones_.push_back(tensor);
    return &clones_.back();
}

int HostDispatch::damage(std::size_t group, Damage damage) {
    if (group >= pools_.size() || !pools_[group]) return 0;
    LayerPool &pool = *pools_[group];
    pool.finish_event();
    pool.finish_warm();
    if (damage == Damage::swapped_slots) return swap_used_slots(pool.pool());
    const std::vector<int> used = slots_to_change(pool.pool(), damage);
    for (const int slot : used) pool.memory().slab(0, slot)[0] ^= 0x40;
    return static_cast<int>(used.size());
}

}  // namespace slotpool
