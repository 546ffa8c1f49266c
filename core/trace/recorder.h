// Records the routing of every pooled event into a trace file, beside the compute: a ring for each pool, one thread that empties them.
//
// An ubatch is taken as a whole, once its context has begun the next one or has been still for a while. Ubatches are numbered through
// the file in the order in which they are taken; contexts are told apart by a stream number.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trace/blocks.h"
#include "trace/ring.h"

namespace slotpool::trace {

// What a finished recording holds.
struct Totals {
    std::uint64_t n_events = 0;
    std::uint64_t n_rows = 0;
    std::uint64_t n_dropped = 0;
    std::string error;  // why the file could not be written to its end; empty when it was
};

class Recorder {
   public:
    // Appends to the file at `path`, which has its header already. nullptr and one line in `error` when that cannot be done.
    static std::shared_ptr<Recorder> start(const std::string &path, std::string &error);
    ~Recorder() { finish(); }
    Recorder(const Recorder &) = delete;
    Recorder &operator=(const Recorder &) = delete;

    // A ring for one pool; `context` is anything that is the same for all pools of a context and for no others.
    std::shared_ptr<Ring> add_ring(int layer, bool is_chunk, int n_expert, const void *context);
    // Writes what is there and the end of the file, and stops. The same answer when it is asked again.
    Totals finish();

   private:
    using Place = std::pair<int, bool>;  // a layer and whether it is the second pass
    struct Source {
        std::shared_ptr<Ring> ring;
        Place place;
        std::uint16_t stream = 0;
    };
    using Ubatches = std::map<std::uint64_t, std::map<Place, Event>>;  // of one stream, as the context counts them

    explicit Recorder(std::FILE *file) : file_(file) {}
    // An ubatch that was taken: what more of it comes late has the same number.
    struct Taken {
        std::uint64_t ubatch = 0;
        std::uint64_t number = 0;
        std::size_t n_tokens = 0;
    };

    void run();
    bool drain();            // true when anything came
    void take(bool is_all);  // ubatches that are over, or all
    void take_ubatch(std::uint16_t stream, std::uint64_t ubatch, std::map<Place, Event> &events);
    void write_taken();
    void write(const std::string &bytes);
    const GroupKind &kind_of(Place place, std::int32_t n_used);
    std::uint64_t n_dropped();
    void close_rings();

    std::FILE *file_;
    std::thread thread_;
    std::mutex mutex_;  // over sources_, n_expert_, streams_ and is_ending_; no computing thread takes it for an event
    std::condition_variable wake_;
    bool is_ending_ = false;
    std::vector<Source> sources_;
    std::map<Place, int> n_expert_;
    std::vector<const void *> streams_;

    // the thread's own
    std::map<std::uint16_t, Ubatches> waiting_;
    std::map<std::uint16_t, Taken> last_;  // by stream
    std::map<Place, std::vector<Row>> taken_;
    std::size_t n_taken_ids_ = 0;
    std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
    std::map<Place, GroupKind> kinds_;
    std::uint64_t n_ubatches_ = 0;
    std::uint64_t n_lost_ = 0;  // events that came twice in an ubatch, or whose k is not that of their group
    Totals totals_;
};

}  // namespace slotpool::trace
