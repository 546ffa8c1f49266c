#include "trace/recorder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "os/printable.h"
#include "os/thread.h"

namespace slotpool::trace {
namespace {

constexpr auto kPause = std::chrono::milliseconds(20);  // between two looks at the rings
constexpr int kStillPauses = 50;                        // after which an ubatch is taken though no other began
constexpr std::size_t kWriteIds = 1U << 16;
constexpr auto kWriteAfter = std::chrono::seconds(2);  // a killed process loses no more

}  // namespace

std::shared_ptr<Recorder> Recorder::start(const std::string &path, std::string &error) {
    std::FILE *file = std::fopen(path.c_str(), "ab");
    if (file == nullptr) {
        error = "Expected to write the trace, found: " + std::string(std::strerror(errno)) + " (at " + os::printable(path) + ")";
        return nullptr;
    }
    std::shared_ptr<Recorder> recorder(new Recorder(file));
    try {
        recorder->thread_ = os::start_thread([raw = recorder.get()] { raw->run(); });
    } catch (const std::system_error &none) {
        error = std::string("Expected a thread for the trace, found none: ") + none.what();
        return nullptr;
    }
    return recorder;
}

std::shared_ptr<Ring> Recorder::add_ring(int layer, bool is_chunk, int n_expert, const void *context) {
    auto ring = std::make_shared<Ring>();
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = std::find(streams_.begin(), streams_.end(), context);
    const auto stream = static_cast<std::uint16_t>(known - streams_.begin());
    if (known == streams_.end()) streams_.push_back(context);
    const Place place(layer, is_chunk);
    n_expert_[place] = n_expert;
    sources_.push_back({ring, place, stream});
    return ring;
}

void Recorder::run() {
    int n_still = 0;
    bool is_ending = false;
    while (!is_ending) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait_for(lock, kPause, [&] { return is_ending_; });
            is_ending = is_ending_;
        }
        n_still = drain() ? 0 : std::min(n_still + 1, kStillPauses);
        take(is_ending || n_still == kStillPauses);
        const bool is_time = std::chrono::steady_clock::now() - written_ > kWriteAfter;
        if (is_ending || is_time || n_taken_ids_ > kWriteIds) write_taken();
    }
    write(end_block(totals_.n_events, totals_.n_rows, n_dropped()));
}

bool Recorder::drain() {
    const std::lock_guard<std::mutex> lock(mutex_);
    bool has_any = false;
    Event event;
    for (const Source &source : sources_) {
        while (source.ring->pop(event)) {
            auto &events = waiting_[source.stream][event.ubatch];
            n_lost_ += events.count(source.place);
            events[source.place] = std::move(event);
            has_any = true;
            event = {};
        }
    }
    return has_any;
}

void Recorder::take(bool is_all) {
    for (auto &[stream, ubatches] : waiting_) {
        while (ubatches.size() > (is_all ? 0U : 1U)) {
            take_ubatch(stream, ubatches.begin()->first, ubatches.begin()->second);
            ubatches.erase(ubatches.begin());
        }
    }
}

void Recorder::take_ubatch(std::uint16_t stream, std::uint64_t ubatch, std::map<Place, Event> &events) {
    Taken &last = last_[stream];
    if (last.ubatch != ubatch) last = {ubatch, n_ubatches_++, 0};
    for (const auto &[place, event] : events) last.n_tokens = std::max(last.n_tokens, event.n_rows());
    for (auto &[place, event] : events) {
        if (kind_of(place, event.n_used).n_used != event.n_used) {
            n_lost_++;
            continue;
        }
        const auto n_rows = static_cast<std::uint32_t>(event.n_rows());
        n_taken_ids_ += event.ids.size();
        totals_.n_events++;
        totals_.n_rows += n_rows;
        taken_[place].push_back({last.number, stream, event.is_prompt, static_cast<std::uint32_t>(last.n_tokens), n_rows, std::move(event.ids)});
    }
}

void Recorder::write_taken() {
    std::string sections;
    for (const auto &[place, rows] : taken_) sections += section(kinds_.at(place), rows);
    if (!sections.empty()) write(events_block(n_dropped(), sections));
    taken_.clear();
    n_taken_ids_ = 0;
    written_ = std::chrono::steady_clock::now();
}

const GroupKind &Recorder::kind_of(Place place, std::int32_t n_used) {
    const auto found = kinds_.find(place);
    if (found != kinds_.end()) return found->second;
    int n_expert = 0;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        n_expert = n_expert_.at(place);
    }
    const GroupKind kind{static_cast<std::uint32_t>(kinds_.size()), place.first, n_expert, n_used, place.second};
    write(group_block(kind));
    return kinds_.emplace(place, kind).first->second;
}

void Recorder::write(const std::string &bytes) {
    if (!totals_.error.empty()) return;
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size() && std::fflush(file_) == 0) return;
    totals_.error = "Expected to write the trace, found: " + std::string(std::strerror(errno));
}

std::uint64_t Recorder::n_dropped() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint64_t n = n_lost_;
    for (const Source &source : sources_) n += source.ring->n_dropped();
    return n;
}

void Recorder::close_rings() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Source &source : sources_) source.ring->close();
}

Totals Recorder::finish() {
    if (thread_.joinable()) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            is_ending_ = true;
        }
        wake_.notify_one();
        thread_.join();
        close_rings();
        totals_.n_dropped = n_dropped();
    }
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
    return totals_;
}

}  // namespace slotpool::trace
