#include "policy/follow.h"

#include <algorithm>

namespace slotpool {
namespace {

// in decayed counts; chosen with the constants of successors.cpp and recall.cpp (docs/design/policy.md)
constexpr double kSuccessorWeight = 15.0;
constexpr double kRecallWeight = 17.5;
constexpr int kCandidates = 8;  // victims of the smallest counts that are weighed

}  // namespace

Follow::Follow(double decay, int n_expert, int n_slots) : counts_(decay, n_expert, n_slots), successors_(n_expert), recall_(n_expert) {}

void Follow::begin_event() {
    counts_.begin_event();
    before_.swap(event_);
    event_.clear();
}

void Follow::asked(int expert, int slot) {
    counts_.asked(expert, slot);
    if (event_.size() <= kLargest) event_.push_back(expert);
}

// ascending: the order inside an event differs between devices and must not matter
void Follow::asked_all() {
    if (event_.size() > kLargest) event_.clear();
    std::sort(event_.begin(), event_.end());
    successors_.learn(before_, event_);
    successors_.follow(event_);
    recall_.add(event_);
}

int Follow::victim(const PoolView &view) const {
    return counts_.slots().least(view, kCandidates, [&](int slot) { return worth(view.expert_in(slot)); });
}

double Follow::worth(int expert) const {
    const double follows = kSuccessorWeight * successors_.likelihood(expert) + kRecallWeight * recall_.promise(expert);
    return counts_.score(expert) + counts_.unit() * follows;
}

}  // namespace slotpool
