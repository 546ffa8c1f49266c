#include "transfer/uploader.h"

#include <algorithm>
#include <chrono>

#include "os/thread.h"

namespace slotpool {
namespace {

constexpr std::size_t kLongPiece = 64U << 20;
constexpr std::size_t kShortestPiece = 1U << 10;
constexpr double kShortPieceNs = 100'000.0;  // what somebody who wants the link waits for at most
constexpr double kNewShare = 0.1;            // of a measurement in the running mean

}  // namespace

Uploader::Uploader(const abi::Api &api) : api_(api), thread_(os::start_thread([this] { work(); })) {}

Uploader::~Uploader() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        is_closing_ = true;
    }
    is_work_.notify_one();
    thread_.join();
}

Uploader::Pause::Pause(Uploader &uploader) : uploader_(uploader) {
    const std::lock_guard<std::mutex> lock(uploader_.mutex_);
    uploader_.n_pauses_++;
}

Uploader::Pause::~Pause() {
    {
        const std::lock_guard<std::mutex> lock(uploader_.mutex_);
        uploader_.n_pauses_--;
    }
    uploader_.is_work_.notify_one();
}

void Uploader::submit(Upload &upload, bool is_urgent) {
    upload.is_urgent = is_urgent;
    upload.n_copied = 0;
    upload.took_ns = 0;
    upload.is_done.store(false, std::memory_order_relaxed);
    if (!is_urgent) later_bytes_.fetch_add(upload.bytes, std::memory_order_relaxed);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        (is_urgent ? urgent_ : later_).push_back(&upload);
    }
    is_work_.notify_one();
}

void Uploader::wait(const Upload &upload) {
    if (upload.is_done.load(std::memory_order_acquire)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    is_done_.wait(lock, [&] { return upload.is_done.load(std::memory_order_acquire); });
}

void Uploader::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        is_work_.wait(lock, [this] { return is_closing_ || has_work(); });
        if (is_closing_) return;
        std::deque<Upload *> &queue = urgent_.empty() ? later_ : urgent_;
        Upload &upload = *queue.front();
        const std::size_t most = urgent_.empty() ? short_piece() : kLongPiece;
        lock.unlock();
        copy_piece(upload, most);
        lock.lock();
        if (upload.n_copied < upload.bytes) continue;
        queue.pop_front();
        upload.is_done.store(true, std::memory_order_release);
        is_done_.notify_all();
    }
}

std::size_t Uploader::short_piece() const {
    const double known = ns_per_byte();
    const double bytes = known > 0.0 ? kShortPieceNs / known : 0.0;
    return bytes >= static_cast<double>(kLongPiece) ? kLongPiece : std::max(kShortestPiece, static_cast<std::size_t>(bytes));
}

void Uploader::copy_piece(Upload &upload, std::size_t most) {
    const auto reading = upload.expert->session->reading();
    if (upload.expert->base == nullptr) {
        return has_copied(upload, upload.bytes - upload.n_copied);
    }
    const std::size_t n = std::min(most, upload.bytes - upload.n_copied);
    const auto begin = std::chrono::steady_clock::now();
    api_.tensor_set(upload.to, upload.from + upload.n_copied, upload.offset + upload.n_copied, n);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    has_copied(upload, n);
    upload.took_ns += static_cast<std::uint64_t>(took.count());
    const double measured = took.count() / static_cast<double>(n);
    const double before = ns_per_byte();
    ns_per_byte_.store(before == 0.0 ? measured : before + kNewShare * (measured - before), std::memory_order_relaxed);
}

void Uploader::has_copied(Upload &upload, std::size_t n) {
    upload.n_copied += n;
    if (!upload.is_urgent) later_bytes_.fetch_sub(n, std::memory_order_relaxed);
}

}  // namespace slotpool
