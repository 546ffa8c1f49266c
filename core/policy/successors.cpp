#include "policy/successors.h"

#include <algorithm>

namespace slotpool {
namespace {

constexpr double kDoubt = 1.0;  // as if every expert had been followed by nobody this often

std::size_t power_of_two(std::size_t least, std::size_t most) {
    std::size_t width = 1;
    while (width < least && width < most) width *= 2;
    return width;
}

}  // namespace

Successors::Successors(int n_expert)
    : width_(power_of_two(static_cast<std::size_t>(n_expert), kWidth)), count_(width_ * width_, 0), asked_(width_, 0) {}

void Successors::learn(const std::vector<int> &before, const std::vector<int> &now) {
    for (const int expert : before) {
        const std::size_t row = place(expert);
        if (asked_[row] == kFull) halve(row);
        asked_[row]++;
        std::uint8_t *counts = &count_[row * width_];
        for (const int next : now) counts[place(next)] = static_cast<std::uint8_t>(std::min(counts[place(next)] + 1, int{kFull}));
    }
}

void Successors::halve(std::size_t row) {
    asked_[row] /= 2;
    for (std::size_t i = row * width_; i < (row + 1) * width_; i++) count_[i] /= 2;
}

void Successors::follow(const std::vector<int> &event) {
    rows_.clear();
    for (const int expert : event) {
        const std::size_t row = place(expert);
        rows_.push_back({row * width_, 1.0 / ((asked_[row] + kDoubt) * static_cast<double>(event.size()))});
    }
}

double Successors::likelihood(int expert) const {
    double sum = 0.0;
    for (const Row &row : rows_) sum += count_[row.begin + place(expert)] * row.weight;
    return sum;
}

}  // namespace slotpool
