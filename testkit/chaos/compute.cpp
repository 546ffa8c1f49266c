// Everything up to a node with indices is computed first; then the indices are checked and counted.
#include "compute.h"

#include <algorithm>

#include "ops.h"

namespace chaos {

Piece::~Piece() {
    if (context_ != nullptr) api().free(context_);
}

abi::Graph *Piece::of(abi::Tensor *const *nodes, std::size_t n_nodes) {
    if (n_nodes > capacity_) {
        if (context_ != nullptr) api().free(context_);
        capacity_ = 2 * n_nodes;
        context_ = api().init({api().graph_overhead(capacity_, false), nullptr, true});
        graph_ = context_ == nullptr ? nullptr : api().new_graph(context_, capacity_, false);
        if (graph_ == nullptr) capacity_ = 0;
    }
    if (graph_ == nullptr) return nullptr;
    api().graph_clear(graph_);
    for (std::size_t i = 0; i < n_nodes; i++) api().graph_add_node(graph_, nodes[i]);
    return graph_;
}

namespace {

abi::Status compute_nodes(abi::Tensor *const *nodes, std::size_t n_nodes, const Executor &executor) {
    if (n_nodes == 0) return abi::Status::success;
    abi::Graph *graph = executor.piece.of(nodes, n_nodes);
    return graph == nullptr ? abi::Status::alloc_failed : executor.compute(graph);
}

std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

void sign(Device &device, abi::Tensor *node) {
    const std::int64_t n_elements = node->ne[0], k = node->ne[1], n_tokens = node->ne[2];
    std::vector<std::uint8_t> bits(static_cast<std::size_t>(n_elements));
    signature(device.index, n_tokens, k, bits.data(), bits.size());
    auto *value = static_cast<std::uint32_t *>(node->data);
    for (std::int64_t row = 0; row < k * n_tokens; row++) {
        for (std::uint8_t bit : bits) {
            const bool is_finite = (*value & 0x7f800000U) != 0x7f800000U;
            *value++ ^= is_finite ? bit : 0U;
        }
    }
}

void count(Device &device, const abi::Tensor *node, std::uint64_t n_expert_bytes) {
    device.counters.add(c_expert_nodes);
    device.counters.add(c_expert_rows, static_cast<std::uint64_t>(node->ne[1] * node->ne[2]));
    device.counters.add(c_expert_bytes, n_expert_bytes);
}

void write_down(Device &device, const std::vector<abi::Tensor *> &nodes) {
    if (!device.knobs.is_on(k_log_nodes)) return;
    const std::lock_guard<std::mutex> lock(device.mutex);
    for (const abi::Tensor *node : nodes) {
        if (device.n_logged++ >= device.knobs[k_log_nodes]) return;
        device.graph_log += std::to_string(device.counters[c_graphs]) + '\t' + api().op_name(node->op) + '\t' + node->name + '\t' +
                            std::to_string(tokens_of(node)) + '\n';
    }
}

}  // namespace

abi::Status compute_on(Device &device, const std::vector<abi::Tensor *> &nodes, const Executor &executor, std::string &error) {
    const std::lock_guard<std::mutex> lock(device.compute);
    device.counters.add(c_graphs);
    device.counters.add(c_nodes, nodes.size());
    write_down(device, nodes);
    double declared_ns = 0;
    std::size_t done = 0;
    const auto compute_up_to = [&](std::size_t end) {
        const abi::Status status = compute_nodes(nodes.data() + done, end - done, executor);
        done = end;
        return status;
    };
    for (std::size_t i = 0; i < nodes.size(); i++) {
        abi::Tensor *node = nodes[i];
        const bool is_expert_matmul = kind_of(node) == Kind::expert_matmul;
        if (!is_expert_matmul) declared_ns += device.knobs[k_node_ns];
        if (!has_indices(node)) continue;
        const abi::Status before = compute_up_to(i);
        if (before != abi::Status::success) return before;
        if (!are_indices_in_range(node)) {
            error = std::string("Expected indices in range, found others - at ") + node->name + " on " + device.name;
            return abi::Status::failed;
        }
        if (!is_expert_matmul) continue;
        executor.on_experts(node);
        const std::uint64_t n_expert_bytes = expert_bytes(node);
        count(device, node, n_expert_bytes);
        declared_ns += device.knobs[k_expert_ns_per_byte] * static_cast<double>(n_expert_bytes);
        if (!device.knobs.is_on(k_sign)) continue;
        const abi::Status status = compute_up_to(i + 1);
        if (status != abi::Status::success) return status;
        sign(device, node);
    }
    const abi::Status status = compute_up_to(nodes.size());
    wait_ns(declared_ns);
    return status;
}

void signature(int device, std::int64_t n_tokens, std::int64_t k, std::uint8_t *bits, std::size_t n_bits) {
    const std::uint64_t seed = mixed(mixed(static_cast<std::uint64_t>(device + 1)) + mixed(static_cast<std::uint64_t>(n_tokens)) * 3 +
                                     mixed(static_cast<std::uint64_t>(k)) * 5);
    for (std::size_t i = 0; i < n_bits; i++) bits[i] = mixed(seed + i) & 1U;
}

}  // namespace chaos
