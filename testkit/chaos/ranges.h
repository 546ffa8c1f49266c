// Sets of addresses: ranges that are kept apart and in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace chaos {

struct Range {
    std::uintptr_t begin = 0, end = 0;
    static Range of(const void *address, std::size_t bytes) {
        const auto begin = reinterpret_cast<std::uintptr_t>(address);
        return {begin, begin + bytes};
    }
};

class Ranges {
   public:
    Ranges() = default;
    explicit Ranges(Range range) { add(range); }

    void add(Range range) {
        if (range.begin >= range.end) return;
        auto at = first_touching(range.begin);
        while (at != ends_.end() && at->first <= range.end) {
            range.begin = std::min(range.begin, at->first);
            range.end = std::max(range.end, at->second);
            at = ends_.erase(at);
        }
        ends_[range.begin] = range.end;
    }

    void remove(Range range) {
        if (range.begin >= range.end) return;
        auto at = first_touching(range.begin);
        while (at != ends_.end() && at->first < range.end) {
            const auto [begin, end] = *at;
            at = ends_.erase(at);
            if (begin < range.begin) ends_[begin] = std::min(end, range.begin);
            if (end > range.end) ends_[range.end] = end;
        }
    }

    void add(const Ranges &others) {
        for (const auto &[begin, end] : others.ends_) add(Range{begin, end});
    }
    void remove(const Ranges &others) {
        for (const auto &[begin, end] : others.ends_) remove(Range{begin, end});
    }

    bool touches(Range range) const {
        auto at = ends_.lower_bound(range.end);  // the first that begins behind it
        return range.begin < range.end && at != ends_.begin() && (--at)->second > range.begin;
    }
    bool touches(const Ranges &others) const {
        return std::any_of(others.ends_.begin(), others.ends_.end(), [&](const auto &range) { return touches(Range{range.first, range.second}); });
    }

    template <class Visit>
    void each(Visit visit) const {
        for (const auto &[begin, end] : ends_) visit(reinterpret_cast<void *>(begin), end - begin);
    }

   private:
    // the first range that ends at `address` or behind it
    std::map<std::uintptr_t, std::uintptr_t>::iterator first_touching(std::uintptr_t address) {
        auto at = ends_.upper_bound(address);
        if (at != ends_.begin() && std::prev(at)->second >= address) --at;
        return at;
    }

    std::map<std::uintptr_t, std::uintptr_t> ends_;
};

}  // namespace chaos
