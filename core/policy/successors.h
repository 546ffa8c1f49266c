// Which experts were asked for right after which: counts over the pairs (expert of an event, expert of the next event).
//
// Counts are small whole numbers that are halved when an expert's own count is full, so that the old ones fade. The table does not
// grow beyond kWidth x kWidth: with more experts than that, some share a place.
#pragma once

#include <cstdint>
#include <vector>

namespace slotpool {

class Successors {
   public:
    explicit Successors(int n_expert);

    // `now` was asked for by the event right after the one of `before`. Distinct experts each.
    void learn(const std::vector<int> &before, const std::vector<int> &now);
    // What likelihood() is asked about from now on: what follows `event`.
    void follow(const std::vector<int> &event);
    // The share of the times that an expert of the event was followed by `expert`, in [0, 1), averaged over the event's experts.
    double likelihood(int expert) const;

   private:
    struct Row {
        std::size_t begin;  // of its counts
        double weight;
    };
    static constexpr std::size_t kWidth = 1024;
    static constexpr std::uint8_t kFull = 255;

    std::size_t place(int expert) const { return static_cast<std::size_t>(expert) & (width_ - 1); }
    void halve(std::size_t row);

    std::size_t width_;                // a power of two
    std::vector<std::uint8_t> count_;  // [width_][width_]
    std::vector<std::uint8_t> asked_;  // [width_]: how often an expert was followed by anything
    std::vector<Row> rows_;            // of the event that is followed
};

}  // namespace slotpool
