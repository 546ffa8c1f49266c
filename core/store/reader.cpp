#include "store/reader.h"

#include <algorithm>
#include <system_error>

#include "os/thread.h"

namespace slotpool {

namespace {

bool is_pending(const ReadRequest &request) {
    const int state = request.state.load(std::memory_order_acquire);
    return state == ReadRequest::kQueued || state == ReadRequest::kRunning;
}

void set_error(ReadRequest &request, const char *text) noexcept {
    try {
        request.error = text;
    } catch (...) {
        request.error = "out of memory";  // short enough to need none
    }
}

// Nothing that is thrown here may leave the thread: it would end the host program.
bool read_now(ReadRequest &request) noexcept {
    try {
        return request.file->read(request.to, request.offset, request.capacity, request.needed, request.error);
    } catch (const std::exception &thrown) {
        set_error(request, thrown.what());
    } catch (...) {
        set_error(request, "unknown error");
    }
    return false;
}

}  // namespace

Reader::Reader(int n_threads) {
    const auto wanted = static_cast<std::size_t>(std::max(n_threads, 1));
    threads_.reserve(wanted);
    try {
        while (threads_.size() < wanted) threads_.push_back(os::start_thread([this] { work(); }));
    } catch (const std::system_error &) {
        if (threads_.empty()) throw;  // fewer threads than wanted still read everything
    }
}

Reader::~Reader() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        is_closing_ = true;
        for (ReadRequest *request : queue_) {
            set_error(*request, "Expected the read to be served, found its reader closed");
            request->state.store(ReadRequest::kFailed, std::memory_order_release);
        }
        queue_.clear();
    }
    is_work_.notify_all();
    is_done_.notify_all();
    for (std::thread &thread : threads_) thread.join();
}

void Reader::submit(ReadRequest &request) {
    request.error.clear();
    try {
        const std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(&request);
        request.state.store(ReadRequest::kQueued, std::memory_order_relaxed);
    } catch (const std::bad_alloc &) {
        set_error(request, "out of memory");
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
        const auto place = std::find(queue_.begin(), queue_.end(), &request);
        if (place != queue_.end()) {
            queue_.erase(place);
        } else {
            is_done_.wait(lock, [&] { return !is_pending(request); });
        }
    }
    request.state.store(ReadRequest::kIdle, std::memory_order_release);
}

void Reader::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        is_work_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        ReadRequest &request = *queue_.front();
        queue_.pop_front();
        request.state.store(ReadRequest::kRunning, std::memory_order_relaxed);
        lock.unlock();
        const bool is_read = read_now(request);
        // under the lock, or a waiter that has just looked would sleep on; the last touch: the request may be gone after it
        lock.lock();
        request.state.store(is_read ? ReadRequest::kDone : ReadRequest::kFailed, std::memory_order_release);
        is_done_.notify_all();
    }
}

}  // namespace slotpool
