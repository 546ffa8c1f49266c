#include "dispatch/expert_chain.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "store/store_buffer.h"

namespace slotpool {
namespace {

constexpr std::int32_t kFlagOutput = 2;  // somebody will look at it

constexpr std::array<const char *, 4> kViews = {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"};

bool is_same_ids(const abi::Tensor *a, const abi::Tensor *b) {
    return a == b || (a->data == b->data && std::memcmp(a->ne, b->ne, sizeof(a->ne)) == 0 && std::memcmp(a->nb, b->nb, sizeof(a->nb)) == 0);
}

class ChainFinder {
   public:
    ChainFinder(const abi::Api &api, abi::Graph *graph, int op_mul_mat_id) : api_(api), graph_(graph), op_mul_mat_id_(op_mul_mat_id) {}

    ExpertChain from(int begin) {
        const int n_nodes = api_.graph_n_nodes(graph_);
        for (int i = begin; i < n_nodes && take(api_.graph_node(graph_, i)); i++) {
        }
        while (chain_.nodes.back().is_view) chain_.nodes.pop_back();  // of the result, for whoever comes next
        chain_.is_whole = has_every_tensor() && has_one_result() && !is_read_between();
        if (!chain_.is_whole) chain_.nodes.resize(1);
        return std::move(chain_);
    }

   private:
    bool take(abi::Tensor *node) {
        const StoredTensor *stored = node->op == op_mul_mat_id_ ? stored_tensor(node->src[0]) : nullptr;
        if (node->op == op_mul_mat_id_ && (stored == nullptr || !belongs(node, *stored))) return false;
        const bool is_view = is_view_node(api_, node);
        if (stored == nullptr && !is_view && !uses_chain(node)) return false;
        chain_.nodes.push_back({node, stored, is_view});
        return true;
    }

    bool belongs(const abi::Tensor *node, const StoredTensor &stored) const {
        if (chain_.nodes.empty()) return true;
        const StoredTensor &first = chain_.first();
        const auto is_this = [&](const ChainNode &one) { return one.stored == &stored; };
        return stored.session == first.session && stored.planned->group == first.planned->group && is_same_ids(node->src[2], chain_.ids()) &&
               std::none_of(chain_.nodes.begin(), chain_.nodes.end(), is_this);
    }

    bool uses_chain(const abi::Tensor *node) const {
        return std::any_of(std::begin(node->src), std::end(node->src), [&](const abi::Tensor *src) { return chain_.maker_of(src) >= 0; });
    }

    bool has_every_tensor() const {
        const StoredTensor &first = chain_.first();
        const auto n_matmuls = std::count_if(chain_.nodes.begin(), chain_.nodes.end(), [](const ChainNode &one) { return one.stored != nullptr; });
        return static_cast<std::size_t>(n_matmuls) == first.session->tensors_of(first.planned->group).size();
    }

    // the reader is in another split: nothing of this one tells
    bool is_read_between() const { return chain_.first().session->is_read_between(chain_.first().planned->group); }

    // every node but the last is used by a later one, and nobody else looks at it
    bool has_one_result() const {
        for (std::size_t i = 0; i + 1 < chain_.nodes.size(); i++) {
            const abi::Tensor *node = chain_.nodes[i].node;
            if ((node->flags & kFlagOutput) != 0) return false;
            if (chain_.nodes[i].is_view) continue;
            const auto uses = [&](const ChainNode &later) {
                return !later.is_view && std::any_of(std::begin(later.node->src), std::end(later.node->src),
                                                     [&](const abi::Tensor *src) { return chain_.maker_of(src) == static_cast<int>(i); });
            };
            if (std::none_of(chain_.nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1, chain_.nodes.end(), uses)) return false;
        }
        return true;
    }

    const abi::Api &api_;
    abi::Graph *graph_;
    int op_mul_mat_id_;
    ExpertChain chain_;
};

}  // namespace

int ExpertChain::maker_of(const abi::Tensor *tensor) const {
    // a view's view_src is the tensor that owns the memory; an operation in place is found as itself first
    for (const abi::Tensor *made = tensor; made != nullptr; made = made->view_src) {
        const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const ChainNode &one) { return one.node == made && !one.is_view; });
        if (found != nodes.end()) return static_cast<int>(found - nodes.begin());
    }
    return -1;
}

bool is_view_node(const abi::Api &api, const abi::Tensor *node) {
    if (node->view_src == nullptr) return false;
    const char *name = api.op_name(node->op);
    return std::any_of(kViews.begin(), kViews.end(), [&](const char *view) { return std::strcmp(name, view) == 0; });
}

ExpertChain find_chain(const abi::Api &api, abi::Graph *graph, int begin, int op_mul_mat_id) {
    return ChainFinder(api, graph, op_mul_mat_id).from(begin);
}

}  // namespace slotpool
