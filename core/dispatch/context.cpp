#include "dispatch/context.h"

#include <algorithm>
#include <utility>

namespace slotpool {
namespace {

constexpr std::uint64_t kFirstUbatch = 2;  // once it has begun

}  // namespace

void Context::adopt(std::shared_ptr<Session> session) {
    session_ = std::move(session);
    counts_ = session_->add_context();
    refused_in_.assign(session_->plan.groups.size(), 0);
    for (std::size_t group = 0; group < std::min(waiting_.size(), refused_in_.size()); group++) {
        if (!is_mine(group) || !session_->may_have_pools(whole_)) continue;
        counts(group).refused.add(static_cast<std::uint64_t>(waiting_[group]));
        if (group < graph_of_ubatch_.is_refused.size() && graph_of_ubatch_.is_refused[group]) refused_in_[group] = ubatch_;
    }
}

bool Context::may_serve(const StoredTensor &stored) {
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

void Context::begin_ubatch() {
    ubatch_++;
    AskedGraph &asked = asked_graph();
    const bool was_asked = asked.number != graph_number_;
    const GraphFacts &facts = asked.facts;
    asked.was_looked_at = true;
    graph_number_ = asked.number;
    // a context has one model: a model's graph without our tensors is another context's, and ours is the one we had
    const bool is_ours = !session_ || facts.session == session_.get() || facts.token_embedding == nullptr;
    is_settled_ = !was_asked || !is_ours;
    // a context builds a graph right before its first ubatch. A prompt that fits no slots begins it too, and no matmul of ours comes then
    if (ubatch_ == kFirstUbatch && session_ && was_asked && facts.session == session_.get()) session_->claim_pools(whole_);
    if (!is_settled_) graph_before_ = std::exchange(graph_of_ubatch_, {});
    // a graph without tokens (a shift of the KV cache) refuses nothing
    if (!is_settled_ && (facts.token_embedding != nullptr || facts.session != nullptr)) graph_of_ubatch_ = facts;
    count_refusals(1);
}

void Context::settle(const abi::Tensor *node) {
    if (is_settled_) return;
    is_settled_ = true;
    const std::vector<const void *> &taken = graph_of_ubatch_.taken;
    if (std::find(taken.begin(), taken.end(), node) != taken.end()) return;
    count_refusals(-1);
    graph_of_ubatch_ = std::move(graph_before_);
    count_refusals(1);
}

// Of a context that has no session yet the refusals wait in `waiting_` until its first expert matmul says whose it is.
void Context::count_refusals(int times) {
    if (session_ && !session_->may_have_pools(whole_)) return;
    const std::vector<bool> &refused = graph_of_ubatch_.is_refused;
    if (!session_) waiting_.resize(std::max(waiting_.size(), refused.size()), 0);
    for (std::size_t group = 0; group < refused.size(); group++) {
        if (!refused[group]) continue;
        if (!session_) waiting_[group] += times;
        if (!session_ || !is_mine(group)) continue;
        counts(group).refused.add(static_cast<std::uint64_t>(static_cast<std::int64_t>(times)));
        refused_in_[group] = times > 0 ? ubatch_ : 0;
    }
}

std::int64_t Context::n_tokens(std::int64_t of_node) const { return std::max(graph_of_ubatch_.n_tokens, of_node); }

Phase Context::phase(std::int64_t of_node) const { return n_tokens(of_node) > kGenerationTokens ? Phase::prompt : Phase::generation; }

void Context::refuse(std::size_t group) {
    if (refused_in_[group] != ubatch_) counts(group).refused.add(1);
    refused_in_[group] = ubatch_;
}

}  // namespace slotpool
