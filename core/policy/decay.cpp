#include "policy/decay.h"

namespace slotpool {
namespace {

constexpr double kUnitLimit = 1e100;
constexpr double kMostEvents = 1000.0;  // that a score sums up, where a decay forgets nothing or little
constexpr double kTrust = 0.1;          // of the score that what is expected would have led to (docs/log.md)

}  // namespace

DecayedCounts::DecayedCounts(double decay, int n_expert, int n_slots)
    : growth_(1.0 / decay),
      seed_(kTrust * (decay > 0.999 ? kMostEvents : 1.0 / (1.0 - decay))),
      score_(static_cast<std::size_t>(n_expert), 0.0),
      slots_(n_slots) {}

void DecayedCounts::begin_event() {
    unit_ *= growth_;
    if (unit_ > kUnitLimit) rescale();
}

// a slot that is being filled is among them too: it must know what it was asked for meanwhile
void DecayedCounts::asked(int expert, int slot) {
    score_[static_cast<std::size_t>(expert)] += unit_;
    if (slot != kNone && !kept_.has(expert)) slots_.raise(slot, score(expert));
}

void DecayedCounts::rescale() {
    for (double &score : score_) score /= unit_;
    slots_.divide(unit_);
    unit_ = 1.0;
}

int Decay::victim(const PoolView &view) const {
    return counts_.slots().least(view, 1, [&](int slot) { return counts_.score(view.expert_in(slot)); });
}

}  // namespace slotpool
