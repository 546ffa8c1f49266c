// One llama context as one of its pool devices sees it: whose session it is, which ubatch it computes, and what was refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/graph_facts.h"
#include "store/session.h"

namespace slotpool {

class Context {
   public:
    // `whole` stands for the llama context: all of its parts, one for each pool device, have the same.
    Context(std::string device, std::shared_ptr<const void> whole) : device_(std::move(device)), whole_(std::move(whole)) {}

    // From now on this context belongs to `session`; a session's second model or another session is not pooled here.
    void adopt(std::shared_ptr<Session> session);
    const std::string &device() const { return device_; }
    const std::shared_ptr<Session> &session() const { return session_; }
    // The session is the context's own, and what lies on disk is what was loaded. When not, the session knows why.
    bool may_serve(const StoredTensor &stored);
    // Of a plan for the first context only: it is this one, which computes now. The others compute from the store, and count nothing.
    bool has_pools() const { return session_ != nullptr && session_->claim_pools(whole_); }
    GroupCounts &counts(std::size_t group) { return counts_->groups[group]; }

    // An ubatch of the context begins, on the graph that was built last or on the one before.
    void begin_ubatch();
    std::uint64_t ubatch() const { return ubatch_; }
    // Another context may have reserved its graphs since this one built its own: the first expert matmul tells whose the facts are.
    void settle(const abi::Tensor *node);

    // A prompt's last layer arrives with the output rows only, and would look like generation: the size of its ubatch decides.
    std::int64_t n_tokens(std::int64_t of_node) const;
    Phase phase(std::int64_t of_node) const;
    // Counts the ubatch as refused by the group, once.
    void refuse(std::size_t group);

   private:
    bool is_mine(std::size_t group) const { return session_->device_of(static_cast<int>(group)) == device_; }
    void count_refusals(int times);

    std::string device_;  // ggml's name
    std::shared_ptr<const void> whole_;
    std::shared_ptr<Session> session_;
    std::shared_ptr<ContextCounts> counts_;
    std::vector<std::uint64_t> refused_in_;  // by group: the last ubatch counted as refused
    std::uint64_t ubatch_ = 1;
    std::uint64_t graph_number_ = 0;
    GraphFacts graph_of_ubatch_;
    GraphFacts graph_before_;  // in case the one above turns out to be another context's
    bool is_settled_ = true;
    std::vector<std::int64_t> waiting_;  // by group: refusals before the context had a session
};

}  // namespace slotpool
