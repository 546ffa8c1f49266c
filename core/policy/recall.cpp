#include "policy/recall.h"

#include <algorithm>

#include "policy/policy.h"

namespace slotpool {
namespace {

constexpr std::size_t kHashBits = 12;
constexpr int kTries = 4;    // entries that are looked at for each hash
constexpr int kHorizon = 8;  // events after a like one that count
constexpr double kFade = 0.6875;
constexpr double kNear = 0.23;     // weight of an event that lacks one of the experts
constexpr double kBefore = 118.0;  // how much more weight when all experts of the events before are shared
constexpr double kDoubt = 0.1;     // weight of an event like this one that was followed by nobody

std::uint32_t mixed(int expert) {
    std::uint32_t value = (static_cast<std::uint32_t>(expert) + 1) * 0x9E3779B1u;
    return value ^ (value >> 15);
}

// does not depend on the order, and one is taken out in a step
std::uint32_t sum_of(const std::vector<int> &event) {
    std::uint32_t sum = 0;
    for (const int expert : event) sum += mixed(expert);
    return sum;
}

}  // namespace

Recall::Recall(int n_expert)
    : entries_(kEntries),
      newest_(std::size_t{1} << kHashBits, 0),
      in_last_(static_cast<std::size_t>(n_expert), 0),
      in_before_(static_cast<std::size_t>(n_expert), 0),
      promises_(static_cast<std::size_t>(n_expert)) {}

void Recall::add(const std::vector<int> &event) {
    event_++;
    weights_ = kDoubt;
    before_.swap(last_);
    last_ = event;
    for (const int expert : before_) in_before_[static_cast<std::size_t>(expert)] = event_;
    for (const int expert : last_) in_last_[static_cast<std::size_t>(expert)] = event_;
    look_back(event);
    append(event);
}

double Recall::promise(int expert) const {
    const Promise &made = promises_[static_cast<std::size_t>(expert)];
    return made.made_in == event_ ? made.sum / weights_ : 0.0;
}

void Recall::look_back(const std::vector<int> &event) {
    const std::uint32_t all = sum_of(event);
    for (const int without : event) {
        const std::uint32_t hash = all - mixed(without);
        std::uint32_t number = newest(hash);
        for (int tries = 0; tries < kTries && number != 0 && is_kept(number - 1); tries++) {
            const std::uint32_t at = number - 1;
            const Entry &found = entry(at);
            number = found.older;
            if (found.hash == hash) consider(at - found.place);
        }
    }
}

std::uint32_t &Recall::newest(std::uint32_t hash) { return newest_[(hash * 0x85EBCA6Bu) >> (32 - kHashBits)]; }

void Recall::consider(std::uint32_t begin) {
    if (!is_kept(begin) || entry(begin).seen_in == event_) return;
    entry(begin).seen_in = event_;
    const int n_shared = shared(begin, in_last_);
    const auto size = static_cast<int>(last_.size());
    if (n_shared < size - 1) return;
    const bool is_same = n_shared == size && entry(begin).size == size;
    promise_after(begin, (is_same ? 1.0 : kNear) * likeness_of_before(begin));
}

int Recall::shared(std::uint32_t begin, const std::vector<std::uint32_t> &asked_in) {
    int n_shared = 0;
    for (std::uint32_t number = begin; number < begin + entry(begin).size; number++) {
        const std::int32_t expert = entry(number).expert;
        n_shared += expert >= 0 && asked_in[static_cast<std::size_t>(expert)] == event_ ? 1 : 0;
    }
    return n_shared;
}

double Recall::likeness_of_before(std::uint32_t begin) {
    if (before_.empty() || begin == 0 || !is_kept(begin - 1)) return 1.0;
    const std::uint32_t before = begin - 1 - entry(begin - 1).place;
    if (!is_kept(before)) return 1.0;
    const double share = shared(before, in_before_) / static_cast<double>(before_.size());
    return 1.0 + kBefore * share * share * share;
}

void Recall::promise_after(std::uint32_t begin, double weight) {
    weights_ += weight;
    std::uint32_t number = begin + entry(begin).size;
    for (int after = 0; after < kHorizon && number != next_; after++) {
        const std::uint32_t end = number + entry(number).size;
        for (; number != end; number++) {
            if (entry(number).expert < 0) return;  // a gap
            Promise &made = promises_[static_cast<std::size_t>(entry(number).expert)];
            made.sum = (made.made_in == event_ ? made.sum : 0.0) + weight;
            made.made_in = event_;
        }
        weight *= kFade;
    }
}

void Recall::append(const std::vector<int> &event) {
    const std::uint32_t all = sum_of(event);
    for (std::size_t place = 0; place < event.size(); place++) append(event[place], all - mixed(event[place]), place, event.size());
    if (event.empty()) append(kNone, 0, 0, 1);
}

void Recall::append(std::int32_t expert, std::uint32_t hash, std::size_t place, std::size_t size) {
    std::uint32_t &head = newest(hash);
    entry(next_) = {expert, hash, head, 0, static_cast<std::uint8_t>(place), static_cast<std::uint8_t>(size)};
    head = ++next_;
    n_kept_ = static_cast<std::uint32_t>(std::min<std::size_t>(n_kept_ + std::size_t{1}, kEntries));
}

}  // namespace slotpool
