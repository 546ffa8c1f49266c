#include "store/reader.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "os/memory.h"
#include "os/thread.h"

namespace slotpool {

namespace {

bool is_pending(const ReadRequest &request) {
    const int state = request.state.load(std::memory_order_acquire);
    return state == ReadRequest::kQueued || state == ReadRequest::kRunning;
}

std::string why(const char *text) noexcept {
    try {
        return text;
    } catch (...) {
        return "out of memory";  // short enough to need none
    }
}

// Bytes of a piece: about a megabyte, pieces of a request alike. Smaller ones cost time, larger ones let a later request in.
std::size_t piece_bytes(const ReadRequest &request) {
    constexpr std::size_t kPiece = 1U << 20;
    const std::size_t n_pieces = std::max<std::size_t>(1, (request.capacity + kPiece / 2) / kPiece);
    const std::size_t grain = request.sink != nullptr ? request.unit : request.file->alignment();
    return std::max(((request.capacity + n_pieces - 1) / n_pieces + grain - 1) / grain * grain, grain);
}

// Memory of one thread that pieces are read into on their way to a sink.
class Bounce {
   public:
    Bounce() = default;
    ~Bounce() { release(); }
    Bounce(const Bounce &) = delete;
    Bounce &operator=(const Bounce &) = delete;

    // nullptr when the system has no such memory. Of a page's alignment; valid until the next call.
    std::uint8_t *room(std::size_t bytes) {
        if (bytes <= size_) return base_;
        release();
        bytes = std::max(bytes, kLeast);
        base_ = static_cast<std::uint8_t *>(os::reserve_memory(bytes));
        size_ = base_ == nullptr ? 0 : bytes;
        if (base_ != nullptr) os::keep_from_children(base_, size_);
        return base_;
    }

   private:
    static constexpr std::size_t kLeast = 2U << 20;  // a huge page: a read pins its memory page by page
    void release() {
        if (base_ != nullptr) os::release_memory(base_, size_);
        size_ = 0;
    }
    std::uint8_t *base_ = nullptr;
    std::size_t size_ = 0;
};

bool read_into_place(const ReadRequest &request, std::size_t begin, std::size_t size, std::string &error) {
    const std::size_t needed = request.needed > begin ? std::min(request.needed - begin, size) : 0;
    return request.file->read(request.to + begin, request.offset + begin, size, needed, error);
}

bool read_into_sink(const ReadRequest &request, std::size_t begin, std::size_t size, Bounce &bounce, std::string &error) {
    const std::uint64_t offset = request.offset + begin;
    const std::size_t alignment = request.file->alignment();
    const std::size_t in_block = static_cast<std::size_t>(offset % alignment);
    const std::size_t capacity = (in_block + size + alignment - 1) / alignment * alignment;
    std::uint8_t *memory = bounce.room(capacity);
    if (memory == nullptr) {
        error = "Expected " + std::to_string(capacity) + " bytes of memory to read through, found none";
        return false;
    }
    if (!request.file->read(memory, offset - in_block, capacity, in_block + size, error)) return false;
    request.sink->put(memory + in_block, begin, size, request.to);
    return true;
}

// Empty: it is read. Nothing that is thrown here may leave the thread: it would end the host program.
std::string read_now(const ReadRequest &request, std::size_t begin, std::size_t size, Bounce &bounce) noexcept {
    try {
        std::string error;
        if (request.sink != nullptr ? read_into_sink(request, begin, size, bounce, error) : read_into_place(request, begin, size, error)) return {};
        return error.empty() ? why("Expected the bytes of a read, found none and no reason") : error;  // empty would mean that it is read
    } catch (const std::exception &thrown) {
        return why(thrown.what());
    } catch (...) {
        return why("unknown error");
    }
}

}  // namespace

Reader::Reader(int n_threads) {
    const auto wanted = static_cast<std::size_t>(std::max(n_threads, 1));
    threads_.reserve(wanted);
    try {
        while (threads_.size() < wanted) threads_.push_back(os::start_thread([this] { work(); }));
    } catch (...) {
        if (threads_.empty()) throw;  // fewer threads than wanted still read everything
    }
}

Reader::~Reader() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        is_closing_ = true;
        while (!queue_.empty()) {
            ReadRequest &request = *queue_.front();
            request.error = why("Expected the read to be served, found its reader closed");
            request.is_broken = true;
            give_up_rest(request);
            if (request.n_running == 0) request.state.store(ReadRequest::kFailed, std::memory_order_release);
        }
    }
    is_work_.notify_all();
    is_done_.notify_all();
    for (std::thread &thread : threads_) thread.join();
}

void Reader::submit(ReadRequest &request) {
    request.error.clear();
    request.begun_bytes = request.n_running = 0;
    request.is_broken = false;
    try {
        const std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(&request);
        request.state.store(ReadRequest::kQueued, std::memory_order_relaxed);
    } catch (const std::bad_alloc &) {
        request.error = why("out of memory");
        request.state.store(ReadRequest::kFailed, std::memory_order_release);
        return;
    }
    is_work_.notify_one();
}

bool Reader::wait(ReadRequest &request) {
    if (is_pending(request)) {
        std::unique_lock<std::mutex> lock(mutex_);
        is_done_.wait(lock, [&] { return !is_pending(request); });
    }
    return !request.is_failed();
}

void Reader::cancel(ReadRequest &request) {
    if (is_pending(request)) {
        std::unique_lock<std::mutex> lock(mutex_);
        give_up_rest(request);
        if (request.n_running > 0) is_done_.wait(lock, [&] { return !is_pending(request); });
    }
    request.state.store(ReadRequest::kIdle, std::memory_order_release);
}

void Reader::give_up_rest(ReadRequest &request) {
    request.begun_bytes = request.capacity;
    const auto place = std::find(queue_.begin(), queue_.end(), &request);
    if (place != queue_.end()) queue_.erase(place);
}

Reader::Piece Reader::take_piece() {
    ReadRequest &request = *queue_.front();
    const Piece piece{&request, request.begun_bytes, std::min(piece_bytes(request), request.capacity - request.begun_bytes)};
    request.state.store(ReadRequest::kRunning, std::memory_order_relaxed);
    request.begun_bytes += piece.size;
    request.n_running++;
    if (request.begun_bytes == request.capacity) queue_.pop_front();
    return piece;
}

// The last touch of a request whose last piece this was: it may be gone after it.
void Reader::end_piece(const Piece &piece, std::string error) {
    ReadRequest &request = *piece.request;
    request.n_running--;
    if (!error.empty()) {
        if (!request.is_broken) request.error = std::move(error);
        request.is_broken = true;
        give_up_rest(request);
    }
    if (request.n_running > 0 || request.begun_bytes < request.capacity) return;
    request.state.store(request.is_broken ? ReadRequest::kFailed : ReadRequest::kDone, std::memory_order_release);
    is_done_.notify_all();
}

void Reader::work() {
    Bounce bounce;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        is_work_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const Piece piece = take_piece();
        if (!queue_.empty()) is_work_.notify_one();  // a request wakes one thread; its other pieces want more
        lock.unlock();
        std::string error = read_now(*piece.request, piece.begin, piece.size, bounce);
        lock.lock();  // or a waiter that has just looked would sleep on
        end_piece(piece, std::move(error));
    }
}

}  // namespace slotpool
