#include "pool/pool.h"

#include <algorithm>

namespace slotpool {

Pool::Pool(int n_expert, int n_slots, std::unique_ptr<Policy> policy)
    : n_expert_(n_expert), policy_(std::move(policy)), slots_(static_cast<std::size_t>(n_slots)), experts_(static_cast<std::size_t>(n_expert)) {
    for (int index = n_slots - 1; index >= 0; index--) free_.push_back(index);
}

// The coldest gets the lowest slot: where the policy sees no difference, it goes first.
std::vector<Lookup> Pool::warm(const std::vector<Expected> &hottest, int n_kept) {
    event_++;
    policy_->begin_event();
    for (const Expected &one : hottest) policy_->seed(one.expert, one.share);
    for (std::size_t i = 0; i < hottest.size() && static_cast<int>(i) < n_kept; i++) {
        expert(hottest[i].expert).is_kept = true;
        policy_->keep(hottest[i].expert);
    }
    std::vector<Lookup> warmed;
    for (std::size_t i = 0; i < std::min(hottest.size(), free_.size()); i++) warmed.push_back({hottest[i].expert, kNone, kNone, 0, false});
    for (auto lookup = warmed.rbegin(); lookup != warmed.rend(); ++lookup) admit(*lookup, false);
    return warmed;
}

int Pool::find(int expert) const { return experts_[static_cast<std::size_t>(expert)].filled; }

bool Pool::are_in_range(const std::int32_t *ids, std::size_t n_ids) const {
    return std::all_of(ids, ids + n_ids, [this](std::int32_t id) { return id >= 0 && id < n_expert_; });
}

bool Pool::pass(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out) {
    if (!are_in_range(ids, n_ids)) return false;
    candidates_.reserve(std::min(n_ids, experts_.size()));
    event_++;
    const bool has_free_slots = !free_.empty();
    if (has_free_slots) policy_->begin_event();
    collect(ids, n_ids, out);
    if (!has_free_slots) return true;
    tell(out);
    fill_free_slots(out);
    return true;
}

void Pool::fill_free_slots(std::vector<Lookup> &lookups) {
    list_misses(lookups);
    std::stable_sort(candidates_.begin(), candidates_.end(), [](const Lookup *a, const Lookup *b) { return a->n_rows > b->n_rows; });
    for (Lookup *lookup : candidates_) {
        if (!free_.empty()) admit(*lookup, false);
    }
}

bool Pool::event(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out, bool may_refuse) {
    if (!look_up(ids, n_ids, out)) return false;
    if (may_refuse && policy_->is_choosy()) {
        for (Lookup *lookup : rank(out)) admit(*lookup, true);
        return true;
    }
    for (Lookup &lookup : out) {
        if (!lookup.is_hit) admit(lookup, false);
    }
    return true;
}

bool Pool::look_up(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out) {
    if (!are_in_range(ids, n_ids)) return false;
    candidates_.reserve(std::min(n_ids, experts_.size()));
    event_++;
    policy_->begin_event();
    collect(ids, n_ids, out);
    tell(out);
    return true;
}

const std::vector<Lookup *> &Pool::rank(std::vector<Lookup> &lookups) {
    list_misses(lookups);
    std::stable_sort(candidates_.begin(), candidates_.end(), [this](const Lookup *a, const Lookup *b) {
        const double worth_a = policy_->worth(a->expert);
        const double worth_b = policy_->worth(b->expert);
        return worth_a != worth_b ? worth_a > worth_b : a->n_rows > b->n_rows;
    });
    return candidates_;
}

void Pool::list_misses(std::vector<Lookup> &lookups) {
    candidates_.clear();
    for (Lookup &lookup : lookups) {
        if (!lookup.is_hit && expert(lookup.expert).slot == kNone) candidates_.push_back(&lookup);
    }
}

void Pool::tell(const std::vector<Lookup> &lookups) {
    for (const Lookup &lookup : lookups) policy_->asked(lookup.expert, expert(lookup.expert).slot);
    policy_->asked_all();
    for (const Lookup &lookup : lookups) {
        if (!lookup.is_hit) continue;
        slot(lookup.slot).used_in = event_;
        policy_->hit(lookup.expert, lookup.slot);
    }
}

void Pool::collect(const std::int32_t *ids, std::size_t n_ids, std::vector<Lookup> &out) {
    out.clear();
    for (std::size_t row = 0; row < n_ids; row++) {
        Expert &asked = expert(ids[row]);
        if (asked.seen_in == event_) {
            out[static_cast<std::size_t>(asked.index)].n_rows++;
            continue;
        }
        asked.seen_in = event_;
        asked.index = static_cast<std::int32_t>(out.size());
        out.push_back({ids[row], asked.filled, kNone, 1, asked.filled != kNone});
    }
}

bool Pool::admit(Lookup &lookup, bool may_refuse) {
    if (expert(lookup.expert).slot != kNone) return false;  // on its way already: not a hit, not admitted twice
    const int index = take_slot(lookup, may_refuse);
    if (index == kNone) return false;
    Slot &taken = slot(index);
    taken.expert = lookup.expert;
    taken.is_filling = true;
    taken.used_in = event_;
    expert(lookup.expert).slot = index;
    lookup.slot = index;
    policy_->admitted(lookup.expert, index);
    return true;
}

int Pool::take_slot(Lookup &lookup, bool may_refuse) {
    lookup.evicted = kNone;
    if (free_.empty()) {
        const int victim = policy_->victim(*this);
        if (victim == kNone) return kNone;
        if (may_refuse && !expert(lookup.expert).is_kept && policy_->refuses(lookup.expert, expert_in(victim))) return kNone;
        lookup.evicted = slot(victim).expert;
        release(victim);
    }
    const int index = free_.back();
    free_.pop_back();
    return index;
}

void Pool::release(int index) {
    Slot &freed = slot(index);
    policy_->evicted(freed.expert, index);
    expert(freed.expert).slot = expert(freed.expert).filled = kNone;
    freed = Slot{};
    const auto below = std::lower_bound(free_.begin(), free_.end(), index, std::greater<>());
    free_.insert(below, index);
}

void Pool::publish(int index) {
    slot(index).is_filling = false;
    expert(expert_in(index)).filled = index;
}

void Pool::abandon(int index) { release(index); }

bool Pool::evict(int gone) {
    const int index = find(gone);
    if (index == kNone || slot(index).is_pinned || expert(gone).is_kept) return false;
    release(index);
    return true;
}

bool Pool::pin(int resident) {
    const int index = find(resident);
    if (index != kNone) slot(index).is_pinned = true;
    return index != kNone;
}

void Pool::unpin(int resident) {
    const int index = find(resident);
    if (index != kNone) slot(index).is_pinned = false;
}

void Pool::swap_slots(int a, int b) {
    std::swap(slot(a).expert, slot(b).expert);
    for (const int index : {a, b}) {
        if (expert_in(index) == kNone) continue;
        expert(expert_in(index)).slot = index;
        expert(expert_in(index)).filled = is_filling(index) ? kNone : index;
    }
}

bool Pool::is_victim(int index) const {
    const Slot &candidate = slots_[static_cast<std::size_t>(index)];
    const bool is_taken = candidate.expert != kNone && !candidate.is_filling && !candidate.is_pinned && candidate.used_in != event_;
    return is_taken && !experts_[static_cast<std::size_t>(candidate.expert)].is_kept;
}

}  // namespace slotpool
