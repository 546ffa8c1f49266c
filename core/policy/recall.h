// The last events, and what followed those that were most like the current one.
//
// Alike are events that share all experts with it, or all but one. They are found by a hash of the current event's experts without
// each in turn, newest first, a few for each. A larger weight has whose event before was like the one before the current.
#pragma once

#include <cstdint>
#include <vector>

namespace slotpool {

class Recall {
   public:
    explicit Recall(int n_expert);

    // The next event: its distinct experts, ascending, at most 255. An event without experts is a gap: nothing follows from before it.
    void add(const std::vector<int> &event);
    // How soon and how surely `expert` followed the events that were like the last one: the sum of kFade^(events between), averaged.
    double promise(int expert) const;

   private:
    struct Entry {
        std::int32_t expert;
        std::uint32_t hash;     // of its event without it
        std::uint32_t older;    // entry of the same place in newest_ before this one, one more than its number; 0: none
        std::uint32_t seen_in;  // the event for which its event was looked at
        std::uint8_t place;     // in its event; its event begins so many entries before
        std::uint8_t size;      // of its event
    };
    static constexpr std::size_t kEntries = std::size_t{1} << 14;  // experts of events that are remembered
    struct Promise {
        double sum = 0.0;
        std::uint32_t made_in = 0;
    };

    Entry &entry(std::uint32_t number) { return entries_[number & (kEntries - 1)]; }
    bool is_kept(std::uint32_t number) const { return next_ - number <= n_kept_; }
    void look_back(const std::vector<int> &event);
    void consider(std::uint32_t begin);
    int shared(std::uint32_t begin, const std::vector<std::uint32_t> &asked_in);
    double likeness_of_before(std::uint32_t begin);
    void promise_after(std::uint32_t begin, double weight);
    void append(const std::vector<int> &event);
    void append(std::int32_t expert, std::uint32_t hash, std::size_t place, std::size_t size);
    std::uint32_t &newest(std::uint32_t hash);

    std::uint32_t event_ = 0;
    std::uint32_t next_ = 0;    // number of the next entry
    std::uint32_t n_kept_ = 0;  // entries that can be read
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> newest_;     // by hash: one more than the number of the newest entry; 0: none
    std::vector<int> before_;               // the event before the last one
    std::vector<int> last_;                 // the last event
    std::vector<std::uint32_t> in_last_;    // by expert: event_ when the last event has it
    std::vector<std::uint32_t> in_before_;  // by expert: event_ when the event before has it
    double weights_ = 0.0;                  // of the events that were like the last one
    std::vector<Promise> promises_;         // by expert
};

}  // namespace slotpool
