#include "dispatch/device_dispatch.h"

#include <algorithm>
#include <utility>

#include "dispatch/backend_settings.h"
#include "dispatch/host_waves.h"
#include "stats/stopwatch.h"
#include "store/store_buffer.h"

namespace slotpool {
namespace {

constexpr std::size_t kLeastIds = 4096;
constexpr std::size_t kMostWaveBytes = 16U << 20;  // of rows that the CPU computes at a time

// the event's rows by expert, for experts that no pool has
void sort_rows(const Routing &routing, EventRows &rows) {
    rows.clear();
    std::vector<std::int32_t> by_expert(routing.ids.size());
    for (std::size_t row = 0; row < by_expert.size(); row++) by_expert[row] = static_cast<std::int32_t>(row);
    const auto expert_of = [&](std::int32_t row) { return routing.ids[static_cast<std::size_t>(row)]; };
    std::stable_sort(by_expert.begin(), by_expert.end(), [&](std::int32_t a, std::int32_t b) { return expert_of(a) < expert_of(b); });
    rows.rows = by_expert;
    for (std::size_t i = 0; i < by_expert.size(); i++) {
        if (i == 0 || expert_of(by_expert[i]) != expert_of(by_expert[i - 1])) rows.experts.push_back({expert_of(by_expert[i]), i, 0});
        rows.experts.back().n++;
    }
}

bool are_in_range(const Routing &routing, std::int64_t n_expert) {
    return std::all_of(routing.ids.begin(), routing.ids.end(), [&](std::int32_t id) { return id >= 0 && id < n_expert; });
}

// of the group's tensors, those that the chain uses, in its order
std::vector<std::size_t> indices_of(const ExpertChain &chain, const HostSlabs &slabs) {
    std::vector<std::size_t> indices;
    for (const ChainNode &node : chain.nodes) {
        if (node.stored != nullptr) indices.push_back(static_cast<std::size_t>(slabs.index_of(*node.stored)));
    }
    return indices;
}

}  // namespace

DeviceDispatch::DeviceDispatch(const Engine &engine, Context &context)
    : engine_(engine),
      api_(engine.api),
      context_(context),
      uploader_(std::make_unique<Uploader>(api_)),
      backend_(api_.dev_init(engine.device, nullptr)),
      host_(api_),
      graph_(api_, backend_),
      copies_(api_, engine.device),
      store_(api_, planned_name(engine), context),
      stream_(std::make_unique<ExpertStream>(api_, engine.device, *uploader_)),
      pools_(std::make_unique<DevicePools>(engine, context, store_, *uploader_, *stream_)),
      misses_(*uploader_) {}

DeviceDispatch::~DeviceDispatch() {
    stream_.reset();
    pools_.reset();
    uploader_.reset();
    if (ids_buffer_ != nullptr) api_.buffer_free(ids_buffer_);
    if (backend_ != nullptr) api_.backend_free(backend_);
}

void DeviceDispatch::set_n_threads(int n_threads) {
    set_backend_threads(api_, host_.backend(), n_threads);
    set_backend_threads(api_, backend_, n_threads);
}

void DeviceDispatch::set_abort_callback(abi::AbortCallback callback, void *data) {
    set_backend_abort(api_, host_.backend(), callback, data);
    set_backend_abort(api_, backend_, callback, data);
}

// ---- a split ----

abi::Status DeviceDispatch::compute(abi::Graph *graph) {
    const DeviceGraph::Finished at_the_end(graph_);  // nothing of ours may be computing when the scheduler goes on
    const abi::Status status = compute_nodes(graph);
    return status == abi::Status::success ? graph_.start() : status;
}

abi::Status DeviceDispatch::compute_nodes(abi::Graph *graph) {
    const int n_nodes = api_.graph_n_nodes(graph);
    for (int i = 0; i < n_nodes; i++) {
        abi::Tensor *node = api_.graph_node(graph, i);
        const StoredTensor *stored = node->op == engine_.op_mul_mat_id ? stored_tensor(node->src[0]) : nullptr;
        if (stored == nullptr) {
            const abi::Status status = is_view_node(api_, node) ? abi::Status::success : add(*node);
            if (status != abi::Status::success) return status;
            continue;
        }
        ExpertChain chain = find_chain(api_, graph, i, engine_.op_mul_mat_id);
        i += static_cast<int>(chain.nodes.size()) - 1;
        if (const abi::Status status = serve(std::move(chain)); status != abi::Status::success) return status;
    }
    return abi::Status::success;
}

// A node that is no expert matmul. A bias that goes with its experts has a copy on the device.
abi::Status DeviceDispatch::add(const abi::Tensor &node) {
    abi::Tensor &copy = graph_.add(node);
    const StoredBias *bias = stored_bias(node.src[1]);
    if (bias != nullptr) copy.src[1] = copies_.of(*bias);
    if (bias != nullptr && copy.src[1] == nullptr)
        return fail("Expected memory for " + std::string(node.src[1]->name) + " on the device, found none");
    return abi::Status::success;
}

abi::Status DeviceDispatch::flush() {
    const abi::Status status = graph_.start();
    graph_.finish();
    return status;
}

// ---- a layer's experts ----

abi::Status DeviceDispatch::serve(ExpertChain chain) {
    context_.settle(chain.nodes.front().node);
    if (const abi::Status status = flush(); status != abi::Status::success) return status;  // the ids may be among it
    {
        const Uploader::Pause pause(*uploader_);
        routing_.read(api_, *chain.ids());
    }
    pools_->drop_lost(chain.first());
    HostSlabs *slabs = store_.of(chain.first());
    if (slabs == nullptr) return abi::Status::failed;  // the session knows why
    has_room_for_ids(kLeastIds);                       // before slots take what there is
    DevicePool *pool = pools_->of(chain.first(), routing_.n_used);
    const bool passes = !routing_.ids.empty() && does_pass(chain, pool);
    if (passes && pools_->has_stream(chain.first())) return serve_passing(chain, pool, *slabs);
    const bool is_refused = pool != nullptr && !chain.first().is_on_disk() && (passes || is_pruned_and_too_large(*pool));
    if (is_refused) context_.refuse(static_cast<std::size_t>(chain.first().planned->group));
    if (routing_.ids.empty()) return abi::Status::success;
    if (pool != nullptr && !is_refused && is_served_by(*pool, chain.first())) return serve_pooled(chain, *pool, *slabs);
    if (!are_in_range(routing_, chain.first().shape.ne[2])) return fail_of_range(chain.first());
    return serve_on_host(chain, *slabs, pool != nullptr || context_.phase(routing_.n_tokens) == Phase::prompt);
}

// A prompt's last layer arrives with its output rows only. It follows its ubatch: where that did not fit, the pool hears nothing of it.
bool DeviceDispatch::is_pruned_and_too_large(const DevicePool &pool) const {
    const std::int64_t n_tokens = context_.n_tokens(routing_.n_tokens);
    return n_tokens > routing_.n_tokens && std::min<std::int64_t>(n_tokens * routing_.n_used, pool.n_expert()) > pool.n_usable();
}

// On disk every shape comes here, and what does not fit leaves the pool as it is.
bool DeviceDispatch::is_served_by(const DevicePool &pool, const StoredTensor &stored) const {
    if (!stored.is_on_disk()) return routing_.n_used <= pool.n_usable();
    return std::min<std::int64_t>(routing_.n_used * context_.n_tokens(routing_.n_tokens), pool.n_expert()) <= pool.n_usable();
}

abi::Status DeviceDispatch::serve_pooled(const ExpertChain &chain, DevicePool &pool, HostSlabs &slabs) {
    std::string error;
    bool is_served = true;
    if (pool.begins_event(chain.first(), routing_, context_.ubatch())) {
        const Stopwatch update;
        if (!pool.look_up(chain.first(), routing_, context_.ubatch(), context_.session()->plan.is_settled, error)) return fail(error);
        const Phase phase = context_.phase(routing_.n_tokens);
        if (pool.n_misses() > 0) slabs.begin({pool.missed_rows(), indices_of(chain, slabs), phase, false});
        is_served = pool.serve(misses_.plan(pool, context_.session()->plan, phase, routing_.n_used, pools_->shown()), phase, error);
        update.add_to(pool.phase_counts().update_ns);
    }
    for (const ChainNode &node : chain.nodes) {
        if (node.stored != nullptr) pool.mark_served(*node.stored);
    }
    const abi::Status status = is_served ? compute_rows(chain, &pool, slabs, pool.host_rows()) : fail(error);
    if (status == abi::Status::success) return status;
    pool.give_up_event();
    slabs.forget();
    return status;
}

abi::Status DeviceDispatch::fail_of_range(const StoredTensor &stored) {
    return fail("Expected expert ids below " + std::to_string(stored.shape.ne[2]) + " in " + stored.planned->name +
                ", found one outside. The router's output is damaged (NaN?): this request fails");
}

// ---- an event that passes through the device ----

// What was taken and does not fit the slots. A prompt's last layer, which arrives with its output rows only, goes where llama.cpp would have it.
bool DeviceDispatch::does_pass(const ExpertChain &chain, const DevicePool *pool) const {
    const StoredTensor &stored = chain.first();
    const Plan &plan = stored.session->plan;
    if (plan.prefill == Prefill::bypass || stored.is_on_disk() || api_.dev_type(engine_.device) == abi::DeviceType::cpu) return false;
    const std::int64_t n_slots = pool != nullptr ? pool->n_usable() : stored.session->usable_slots(stored.planned->group);
    const auto fits = [&](std::int64_t n_tokens) { return std::min<std::int64_t>(n_tokens * routing_.n_used, stored.shape.ne[2]) <= n_slots; };
    if (!fits(routing_.n_tokens)) return plan.prefill == Prefill::stream || context_.phase(routing_.n_tokens) == Phase::prompt;
    return !fits(context_.n_tokens(routing_.n_tokens)) && api_.dev_offload_op(engine_.device, chain.nodes.front().node);
}

abi::Status DeviceDispatch::serve_passing(const ExpertChain &chain, DevicePool *pool, HostSlabs &slabs) {
    if (!are_in_range(routing_, chain.first().shape.ne[2])) return fail_of_range(chain.first());
    const Phase phase = context_.phase(routing_.n_tokens);
    const std::vector<std::size_t> indices = indices_of(chain, slabs);
    GroupCounts *counts = pool == nullptr ? nullptr : &context_.counts(static_cast<std::size_t>(chain.first().planned->group));
    const PassingEvent event{slabs, pool, counts, routing_, context_.ubatch(), phase, context_.session()->plan.is_settled};
    if (stream_->begins(event, indices)) stream_->begin(event);
    const Stopwatch compute;
    abi::Status status = stream_->fetch(indices, slabs) ? start_passing(chain, pool, slabs) : fail("Expected room for experts that pass, found none");
    graph_.finish();
    if (counts != nullptr) compute.add_to(counts->phase[static_cast<int>(phase)].hit_compute_ns);
    status == abi::Status::success ? stream_->mark_served(indices, pool) : stream_->give_up(pool);
    return status;
}

// Each matmul begins when its experts are there, while those of the next are copied: llama.cpp's own path has a graph for each, too.
abi::Status DeviceDispatch::start_passing(const ExpertChain &chain, DevicePool *pool, const HostSlabs &slabs) {
    for (const ChainNode &node : chain.nodes) {
        if (node.is_view) continue;
        if (node.stored == nullptr) {
            if (const abi::Status status = add(*node.node); status != abi::Status::success) return status;
            continue;
        }
        if (const abi::Status status = graph_.start(); status != abi::Status::success) return status;
        abi::Tensor *weight = stream_->arrived(static_cast<std::size_t>(slabs.index_of(*node.stored)), pool, graph_);
        graph_.add(*node.node).src[0] = weight;
        if (const abi::Status status = graph_.start(); status != abi::Status::success) return status;
    }
    return graph_.start();
}

// ---- an event that the host serves ----

// All rows: no pool of the device has the experts, or the event does not fit it.
abi::Status DeviceDispatch::serve_on_host(const ExpertChain &chain, HostSlabs &slabs, bool is_passing) {
    const std::vector<std::size_t> indices = indices_of(chain, slabs);
    if (begins_on_host(slabs, indices)) {
        slabs.begin({routing_.ids, indices, context_.phase(routing_.n_tokens), is_passing});
        if (chain.first().is_on_disk()) count_on_host(chain.first());
    }
    sort_rows(routing_, all_rows_);
    kept_first(all_rows_, slabs);
    const abi::Status status = compute_rows(chain, nullptr, slabs, all_rows_);
    if (status == abi::Status::success) return status;
    host_event_ = {};
    slabs.forget();
    return status;
}

// No pool of the device was asked, but its rows went through another device's kernels: nobody else can serve this store.
void DeviceDispatch::count_on_host(const StoredTensor &stored) {
    PhaseCounts &counts = context_.counts(static_cast<std::size_t>(stored.planned->group)).phase[static_cast<int>(context_.phase(routing_.n_tokens))];
    counts.events.add(1);
    counts.rows_cpu.add(routing_.ids.size());
}

bool DeviceDispatch::begins_on_host(const HostSlabs &slabs, const std::vector<std::size_t> &indices) {
    HostEvent &known = host_event_;
    const auto is_served = [&](std::size_t index) { return std::find(known.served.begin(), known.served.end(), index) != known.served.end(); };
    const bool begins = known.slabs != &slabs || known.ubatch != context_.ubatch() || is_served(indices.front()) || !(known.routing == routing_);
    if (begins) known = {&slabs, context_.ubatch(), routing_, {}};
    known.served.insert(known.served.end(), indices.begin(), indices.end());
    return begins;
}

// Hits and copied misses on the device, the others on the CPU meanwhile; then the CPU's rows go where the node wants them.
abi::Status DeviceDispatch::compute_rows(const ExpertChain &chain, DevicePool *pool, HostSlabs &slabs, const EventRows &host_rows) {
    if (!host_rows.empty() && chain.nodes.size() > 1 && !host_.can_compute(chain)) {
        for (const ChainNode &node : chain.nodes) {
            ExpertChain one;
            one.nodes.push_back(node);
            const bool is_other = node.stored == nullptr && !node.is_view;
            if (const abi::Status status = is_other ? add(*node.node) : abi::Status::success; status != abi::Status::success) return status;
            if (node.stored == nullptr) continue;
            if (const abi::Status status = flush(); status != abi::Status::success) return status;
            if (const abi::Status status = compute_rows(one, pool, slabs, host_rows); status != abi::Status::success) return status;
        }
        return flush();
    }
    const Stopwatch event;
    if (!host_rows.empty()) {
        const Uploader::Pause pause(*uploader_);
        host_.fetch(chain, host_rows);  // before the device begins: what it needs is complete now
    }
    std::uint64_t fetch_ns = event.ns();
    std::string error;
    if (pool != nullptr && !pool->begin_copies(error)) return fail(error);
    Stopwatch device;
    const bool has_device_rows = pool != nullptr && pool->has_device_rows();
    // a device that waits for copies has nothing to compute yet, the CPU has
    const bool is_device_first = has_device_rows && (host_rows.empty() || !pool->waits_for_copies());
    abi::Status status = is_device_first ? start_device(chain, *pool) : abi::Status::success;
    if (status == abi::Status::success && pool != nullptr && !pool->copy_for_later(error)) status = fail(error);
    if (status == abi::Status::success && !host_rows.empty()) {
        std::uint64_t host_ns = 0;
        status = compute_on_host(chain, slabs, host_rows, host_ns);
        if (pool != nullptr && status == abi::Status::success) note_host_ns(chain, *pool, host_ns);
    }
    if (has_device_rows && !is_device_first && status == abi::Status::success) {
        device = Stopwatch();
        status = start_device(chain, *pool);
    }
    graph_.finish();
    if (has_device_rows) device.add_to(pool->phase_counts().hit_compute_ns);
    if (host_rows.empty() && chain.is_whole && pool->n_misses() == 0) misses_.note_hits(event.ns());
    if (status == abi::Status::success && !host_rows.empty()) {
        const Uploader::Pause pause(*uploader_);
        const Stopwatch upload;
        upload_results(chain, host_rows);
        fetch_ns += upload.ns();
        if (chain.is_whole) misses_.note_fetch(fetch_ns);
    }
    return status;
}

// What waiting for slabs takes is not the CPU's.
abi::Status DeviceDispatch::compute_on_host(const ExpertChain &chain, HostSlabs &slabs, const EventRows &rows, std::uint64_t &ns) {
    HostWaves waves(rows, slabs, indices_of(chain, slabs), std::max<std::size_t>(1, kMostWaveBytes / HostFfn::bytes_per_row(chain)));
    std::string error;
    while (const EventRows *wave = waves.next(error)) {
        const Stopwatch compute;
        if (const abi::Status status = host_.compute(chain, routing_, *wave, slabs); status != abi::Status::success) return status;
        ns += compute.ns();
    }
    return error.empty() ? abi::Status::success : fail(error);
}

void DeviceDispatch::note_host_ns(const ExpertChain &chain, DevicePool &pool, std::uint64_t ns) {
    pool.phase_counts().miss_compute_ns.add(ns);
    const auto n_bytes = static_cast<double>(pool.host_rows().experts.size()) * static_cast<double>(pool.slab_bytes());
    if (chain.is_whole) misses_.note_host(ns, n_bytes);
}

abi::Status DeviceDispatch::start_device(const ExpertChain &chain, DevicePool &pool) {
    abi::Tensor *ids = slot_ids_on_device(*chain.ids(), pool.slot_ids());
    if (ids == nullptr) return fail("Expected memory for " + std::to_string(pool.slot_ids().size()) + " slot ids on the device, found none");
    // the chain as a whole, as a model builds it: what a device fuses it computes with the same kernels as without us
    for (const ChainNode &node : chain.nodes) {
        if (node.stored != nullptr) pool.wait(static_cast<std::size_t>(pool.index_of(*node.stored)));
    }
    for (const ChainNode &node : chain.nodes) {
        if (node.is_view) continue;
        if (node.stored == nullptr) {
            if (const abi::Status status = add(*node.node); status != abi::Status::success) return status;
            continue;
        }
        const auto index = static_cast<std::size_t>(pool.index_of(*node.stored));
        abi::Tensor &matmul = graph_.add(*node.node);
        matmul.src[0] = pool.slot_tensor(index);
        matmul.src[2] = ids;
    }
    return graph_.start();
}

abi::Tensor *DeviceDispatch::slot_ids_on_device(const abi::Tensor &ids, const std::vector<std::int32_t> &slot_ids) {
    const std::size_t bytes = slot_ids.size() * sizeof(std::int32_t);
    if (!has_room_for_ids(bytes)) return nullptr;
    ids_ = abi::Tensor{};
    ids_.type = abi::kTypeI32;
    ids_.buffer = ids_buffer_;
    ids_.ne[0] = ids.ne[0];
    ids_.ne[1] = ids.ne[1];
    ids_.ne[2] = ids_.ne[3] = 1;
    ids_.nb[0] = sizeof(std::int32_t);
    ids_.nb[1] = ids_.nb[0] * static_cast<std::size_t>(ids_.ne[0]);
    ids_.nb[2] = ids_.nb[3] = bytes;
    ids_.data = api_.buffer_base(ids_buffer_);
    const Uploader::Pause pause(*uploader_);
    api_.tensor_set(&ids_, slot_ids.data(), 0, bytes);
    return &ids_;
}

bool DeviceDispatch::has_room_for_ids(std::size_t bytes) {
    if (ids_buffer_ != nullptr && api_.buffer_size(ids_buffer_) >= bytes) return true;
    if (ids_buffer_ != nullptr) api_.buffer_free(ids_buffer_);
    ids_buffer_ = api_.buft_alloc(api_.dev_buffer_type(engine_.device), std::max(bytes, kLeastIds));
    return ids_buffer_ != nullptr;
}

// Rows that follow each other go in one copy.
void DeviceDispatch::upload_results(const ExpertChain &chain, const EventRows &rows) {
    abi::Tensor *result = chain.result();
    const auto n = static_cast<std::size_t>(result->ne[0]);
    std::vector<std::pair<std::size_t, std::size_t>> places;  // where a row goes, and which of ours it is
    for (std::size_t i = 0; i < rows.rows.size(); i++) {
        const auto token = static_cast<std::size_t>(rows.rows[i] / routing_.n_used);
        const auto k = static_cast<std::size_t>(rows.rows[i] % routing_.n_used);
        places.emplace_back(token * result->nb[2] + k * result->nb[1], i);
    }
    std::sort(places.begin(), places.end());
    std::vector<float> run;
    for (std::size_t first = 0, last = 0; first < places.size(); first = last) {
        run.clear();
        do {
            const float *row = host_.result() + places[last].second * n;
            run.insert(run.end(), row, row + n);
            last++;
        } while (last < places.size() && places[last].first == places[last - 1].first + n * sizeof(float));
        api_.tensor_set(result, run.data(), places[first].first, run.size() * sizeof(float));
    }
}

abi::Status DeviceDispatch::fail(const std::string &error) {
    if (context_.session()) context_.session()->fail(error);
    return abi::Status::failed;
}

}  // namespace slotpool
