#include "dispatch/host_waves.h"

#include <algorithm>
#include <utility>

namespace slotpool {
namespace {

constexpr std::size_t kMostWaves = 2;  // one that is computed, one that is read

// what is kept is computed while the first wave is read
bool is_full_of(std::size_t n_loose, std::size_t most) { return n_loose == 0 || n_loose == most; }

}  // namespace

HostWaves::HostWaves(const EventRows &rows, HostSlabs &slabs, std::vector<std::size_t> indices, std::size_t most_rows)
    : rows_(rows), slabs_(slabs), indices_(std::move(indices)) {
    cut(most_rows);
    read_ahead();
}

void HostWaves::cut(std::size_t most_rows) {
    const std::size_t most_loose = slabs_.n_in_wave(indices_);
    std::size_t n_rows = 0;
    for (std::size_t i = 0; i < rows_.experts.size(); i++) {
        const ExpertRows &expert = rows_.experts[i];
        const bool is_loose = !slabs_.is_kept(expert.expert);
        const bool is_full = !parts_.empty() && (n_rows + expert.n > most_rows || (is_loose && is_full_of(parts_.back().loose.size(), most_loose)));
        if (parts_.empty() || is_full) {
            parts_.push_back({i, i, {}});
            n_rows = 0;
        }
        n_rows += expert.n;
        parts_.back().end = i + 1;
        if (is_loose) parts_.back().loose.push_back(expert.expert);
    }
}

void HostWaves::read_ahead() {
    for (; n_begun_ < parts_.size() && n_in_room_ < kMostWaves; n_begun_++) {
        if (parts_[n_begun_].loose.empty()) continue;
        slabs_.begin_wave(parts_[n_begun_].loose, indices_);
        n_in_room_++;
    }
}

const EventRows *HostWaves::next(std::string &error) {
    if (has_wave_) end_wave();
    if (n_done_ == parts_.size()) return nullptr;
    const Part &part = parts_[n_done_++];
    if (!wait(part, error)) return nullptr;
    show(part);
    return &wave_;
}

void HostWaves::end_wave() {
    slabs_.end_wave();
    has_wave_ = false;
    n_in_room_--;
    read_ahead();
}

bool HostWaves::wait(const Part &part, std::string &error) {
    for (const std::size_t index : indices_) {
        for (std::size_t i = part.begin; i < part.end; i++) {
            const std::int32_t expert = rows_.experts[i].expert;
            if (slabs_.is_kept(expert) && !slabs_.wait(index, expert, error)) return false;
        }
    }
    has_wave_ = !part.loose.empty();
    return !has_wave_ || slabs_.wait_for_wave(error);
}

void HostWaves::show(const Part &part) {
    const std::size_t first = rows_.experts[part.begin].begin;
    const ExpertRows &last = rows_.experts[part.end - 1];
    const auto at = [&](std::size_t row) { return rows_.rows.begin() + static_cast<std::ptrdiff_t>(row); };
    wave_.rows.assign(at(first), at(last.begin + last.n));
    wave_.experts.assign(rows_.experts.begin() + static_cast<std::ptrdiff_t>(part.begin),
                         rows_.experts.begin() + static_cast<std::ptrdiff_t>(part.end));
    for (ExpertRows &expert : wave_.experts) expert.begin -= first;
}

void kept_first(EventRows &rows, const HostSlabs &slabs) {
    std::stable_partition(rows.experts.begin(), rows.experts.end(), [&](const ExpertRows &one) { return slabs.is_kept(one.expert); });
    std::vector<std::int32_t> sorted;
    sorted.reserve(rows.rows.size());
    for (ExpertRows &expert : rows.experts) {
        const std::size_t begin = sorted.size();
        for (std::size_t i = 0; i < expert.n; i++) sorted.push_back(rows.rows[expert.begin + i]);
        expert.begin = begin;
    }
    rows.rows = std::move(sorted);
}

}  // namespace slotpool
