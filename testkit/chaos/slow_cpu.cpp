// Wraps backends of the CPU device: a graph is computed up to each MUL_MAT_ID, then its experts are counted and waited for.
#include "slow_cpu.h"

#include <map>
#include <memory>
#include <mutex>

#include "compute.h"
#include "ops.h"

namespace chaos {
namespace {

using InitFn = abi::Backend *(*)(abi::Device *, const char *);

struct Wrapped {
    abi::BackendTable real;
    Piece piece;
};

struct State {
    std::mutex mutex;
    InitFn init = nullptr;  // the CPU's own, once replaced
    std::map<abi::Backend *, std::unique_ptr<Wrapped>> backends;
};

State &state() {
    static State *const the_state = new State;
    return *the_state;
}

Wrapped &wrapped(abi::Backend *backend) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    return *state().backends.at(backend);
}

double ns_per_byte() { return device(0).knobs[k_cpu_ns_per_byte]; }

std::vector<abi::Tensor *> nodes_of(abi::Graph *graph) {
    std::vector<abi::Tensor *> nodes;
    for (int i = 0; i < api().graph_n_nodes(graph); i++) nodes.push_back(api().graph_node(graph, i));
    return nodes;
}

abi::Status compute_slowly(abi::Backend *backend, abi::Graph *graph) {
    Wrapped &own = wrapped(backend);
    if (ns_per_byte() <= 0) return own.real.graph_compute(backend, graph);
    const std::vector<abi::Tensor *> nodes = nodes_of(graph);
    std::size_t done = 0;
    const auto compute_up_to = [&](std::size_t end) {
        abi::Graph *piece = done == end ? nullptr : own.piece.of(nodes.data() + done, end - done);
        if (done == end) return abi::Status::success;
        done = end;
        return piece == nullptr ? abi::Status::alloc_failed : own.real.graph_compute(backend, piece);
    };
    for (std::size_t i = 0; i < nodes.size(); i++) {
        if (is_skipped(nodes[i]) || kind_of(nodes[i]) != Kind::expert_matmul) continue;
        const abi::Status status = compute_up_to(i);
        if (status != abi::Status::success) return status;
        if (are_indices_in_range(nodes[i])) wait_ns(ns_per_byte() * static_cast<double>(expert_bytes(nodes[i])));
    }
    return compute_up_to(nodes.size());
}

void free_wrapped(abi::Backend *backend) {
    const auto real = wrapped(backend).real.free;
    {
        const std::lock_guard<std::mutex> lock(state().mutex);
        state().backends.erase(backend);
    }
    real(backend);
}

abi::Backend *init_wrapped(abi::Device *dev, const char *params) {
    abi::Backend *backend = state().init(dev, params);
    if (backend == nullptr) return nullptr;
    auto own = std::make_unique<Wrapped>();
    own->real = backend->iface;
    {
        const std::lock_guard<std::mutex> lock(state().mutex);
        state().backends[backend] = std::move(own);
    }
    backend->iface.graph_compute = compute_slowly;
    backend->iface.free = free_wrapped;
    return backend;
}

}  // namespace

void slow_cpu_down() {
    const std::lock_guard<std::mutex> lock(state().mutex);
    if (state().init != nullptr || cpu_device() == nullptr) return;
    state().init = cpu_device()->iface.init_backend;
    cpu_device()->iface.init_backend = init_wrapped;
}

abi::Backend *make_cpu_backend() {
    const std::lock_guard<std::mutex> lock(state().mutex);
    const InitFn init = state().init != nullptr ? state().init : cpu_device()->iface.init_backend;
    return init(cpu_device(), nullptr);
}

}  // namespace chaos
