// What the scheduler asked about the graph that this thread built last: how many tokens its ubatch has, and which groups
// did not fit. The scheduler asks supports_op for every node when a graph is built, right before the context computes it on
// the same thread, and does not ask at all when the graph is used again.
#pragma once

#include <cstdint>
#include <vector>

namespace slotpool {

class Session;

struct GraphFacts {
    const Session *session = nullptr;       // whose stored tensors are in it
    const void *token_embedding = nullptr;  // the node that a graph begins with: another one is another graph
    std::vector<const void *> taken;        // the expert matmuls that fitted; compared, never followed
    std::int64_t n_tokens = 0;              // of the ubatch: the most that a node of it has; 0: unknown
    std::vector<bool> is_refused;           // by group of the session

    // The matmul of a planned tensor, by the tensor's number: asked about as another node, or with other tokens, it is another graph's. A
    // scheduler that offloads nothing does not ask every device about the token embedding.
    struct Matmul {
        const void *node = nullptr;  // compared, never followed
        std::int64_t n_tokens = 0;
    };
    std::vector<Matmul> matmuls;

    bool is_of_another_graph(const Session *asked, std::size_t tensor, const void *node, std::int64_t tokens) const {
        if (session != asked || tensor >= matmuls.size() || matmuls[tensor].node == nullptr) return false;
        return matmuls[tensor].node != node || matmuls[tensor].n_tokens != tokens;
    }

    void answer(const Session *asked, std::size_t n_groups, std::size_t group, bool refused) {
        if (session != asked) is_refused.assign(n_groups, false);
        session = asked;
        is_refused[group] = refused;
    }
};

// The facts of this thread's last graph. A context has several pool devices and each of them looks, so looking takes nothing away: the
// first question after a look begins new facts, with the next number.
struct AskedGraph {
    GraphFacts facts;
    std::uint64_t number = 0;
    bool was_looked_at = true;

    GraphFacts &asking() {
        if (was_looked_at) {
            facts = {};
            number++;
        }
        was_looked_at = false;
        return facts;
    }
};

inline AskedGraph &asked_graph() {
    static thread_local AskedGraph asked;
    return asked;
}

}  // namespace slotpool
