// Matmuls and empty nodes on a device: what its compute gets out of its memory, and what a node costs.
#include <algorithm>
#include <cctype>
#include <vector>

#include "probe/device_graph.h"
#include "probe/work.h"
#include "repack/weight_types.h"

namespace slotpool::probe {
namespace {

constexpr std::uint8_t kFill = 0x33;  // a small finite number in every type
constexpr int kMatmulsPerGraph = 3;   // as a layer's gate, up and down arrive
constexpr int kEmptyNodes = 256;
constexpr int kTypes = 43;  // that a GGUF file may have, all of which this ggml has: it looks no number up that it does not know

class Compute : public Work {
   public:
    Compute(const abi::Api &api, abi::Device *device, int n_nodes, int n_leaves, int nodes_per_graph, int n_threads)
        : graph(api, device, n_nodes, n_leaves, nodes_per_graph), n_threads_(n_threads) {}
    std::uint64_t once() override { return per_node * graph.compute(n_threads_); }

    DeviceGraph graph;
    std::uint64_t per_node = 0;

   private:
    int n_threads_;
};

std::string lower(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return name;
}

bool is_sane(const abi::Api &api, const Weights &weights, std::string &error) {
    const char *name = weights.type < 0 || weights.type >= kTypes ? nullptr : api.type_name(weights.type);
    if (name == nullptr || api.blck_size(weights.type) <= 0 || lower(name) != lower(weights.type_name)) {
        error = "Expected type " + std::to_string(weights.type) + " of ggml to be " + weights.type_name + ", found another";
        return false;
    }
    const std::int64_t block = api.blck_size(weights.type);
    const bool is_used = weights.n_matrices > 0 && weights.n_used >= 0 && weights.n_used <= weights.n_matrices;
    if (weights.ne0 > 0 && weights.ne1 > 0 && weights.ne0 % block == 0 && is_used) return true;
    error = "Expected rows of whole blocks of " + std::to_string(block) + " and as many experts as are used, found " + std::to_string(weights.ne0) +
            " x " + std::to_string(weights.ne1) + ", " + std::to_string(weights.n_used) + " of " + std::to_string(weights.n_matrices);
    return false;
}

// The ids of node i are n_used experts that no other node uses.
void add_experts(const abi::Api &api, DeviceGraph &graph, const Weights &weights, std::vector<abi::Tensor *> &ids) {
    abi::Tensor *experts = graph.weight(weights.type, weights.ne0, weights.ne1, weights.n_matrices);
    abi::Tensor *input = graph.input(abi::kTypeF32, weights.ne0);
    for (int first = 0; first + weights.n_used <= weights.n_matrices; first += weights.n_used) {
        ids.push_back(graph.input(abi::kTypeI32, weights.n_used));
        graph.add(api.mul_mat_id(graph.context(), experts, input, ids.back()));
    }
}

void set_ids(const abi::Api &api, const std::vector<abi::Tensor *> &ids, int n_used) {
    std::vector<std::int32_t> experts(static_cast<std::size_t>(n_used));
    std::int32_t next = 0;
    for (abi::Tensor *row : ids) {
        for (std::int32_t &expert : experts) expert = next++;
        api.tensor_set(row, experts.data(), 0, experts.size() * sizeof(std::int32_t));
    }
}

void add_plain(const abi::Api &api, DeviceGraph &graph, const Weights &weights) {
    abi::Tensor *input = graph.input(abi::kTypeF32, weights.ne0);
    for (int i = 0; i < weights.n_matrices; i++) {
        graph.add(api.mul_mat(graph.context(), graph.weight(weights.type, weights.ne0, weights.ne1, 1), input));
    }
}

// The type of memory in which llama.cpp repacks such weights for a node; nullptr where it does not.
abi::BufferType *repacked_type(const abi::Api &api, abi::Device *device, const Weights &weights, const abi::Tensor *node) {
    if (node == nullptr) return nullptr;
    const WeightTypes types(api, device);
    const abi::Tensor shape = array_of(api, weights.type, weights.ne0, weights.ne1, weights.n_used == 0 ? 1 : weights.n_matrices);
    return types.is_repacked(shape, node->op, weights.n_used != 0) ? types.repacked() : nullptr;
}

// Everything but memory.
std::unique_ptr<Compute> without_memory(const abi::Api &api, abi::Device *device, const Weights &weights, int n_threads,
                                        std::vector<abi::Tensor *> &ids) {
    const int n_nodes = weights.n_matrices / std::max(1, weights.n_used);
    auto work = std::make_unique<Compute>(api, device, n_nodes, n_nodes + 2, kMatmulsPerGraph, n_threads);
    if (work->graph.context() == nullptr) return work;
    weights.n_used == 0 ? add_plain(api, work->graph, weights) : add_experts(api, work->graph, weights, ids);
    return work;
}

}  // namespace

bool does_repack(const abi::Api &api, abi::Device *device, const Weights &weights) {
    std::string error;
    if (!is_sane(api, weights, error)) return false;
    std::vector<abi::Tensor *> ids;
    const auto work = without_memory(api, device, weights, 1, ids);
    return repacked_type(api, device, weights, work->graph.first_node()) != nullptr;
}

std::unique_ptr<Work> multiply(const abi::Api &api, abi::Device *device, const Weights &weights, int n_threads, std::string &error) {
    if (!is_sane(api, weights, error)) return nullptr;
    std::vector<abi::Tensor *> ids;
    auto work = without_memory(api, device, weights, n_threads, ids);
    const abi::Tensor *node = work->graph.first_node();
    abi::BufferType *type = weights.is_repacked ? repacked_type(api, device, weights, node) : nullptr;
    if (weights.is_repacked && type == nullptr) {
        error = "Expected weights that llama.cpp repacks for " + std::string(api.dev_name(device)) + ", found that it leaves these as they are";
        return nullptr;
    }
    if (!work->graph.place(kFill, error, type)) return nullptr;
    if (weights.is_repacked && node->src[0]->extra == nullptr) {  // what the engine knows such weights by
        error = "Expected weights that the engine takes for repacked, found others. This is a bug of slotpool: please report it";
        return nullptr;
    }
    set_ids(api, ids, weights.n_used);
    work->per_node =
        api.row_size(weights.type, weights.ne0) * static_cast<std::uint64_t>(weights.ne1) * static_cast<std::uint64_t>(std::max(1, weights.n_used));
    return work;
}

std::unique_ptr<Work> start_nodes(const abi::Api &api, abi::Device *device, int n_threads, std::string &error) {
    auto work = std::make_unique<Compute>(api, device, kEmptyNodes, 1, kEmptyNodes, n_threads);
    if (work->graph.context() != nullptr) {
        abi::Tensor *last = work->graph.input(abi::kTypeF32, 64);
        for (int i = 0; i < kEmptyNodes; i++) work->graph.add(last = api.scale(work->graph.context(), last, 1.0F));
    }
    if (!work->graph.place(kFill, error)) return nullptr;
    work->per_node = 1;
    return work;
}

}  // namespace slotpool::probe
