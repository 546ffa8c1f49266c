// Reads in the background: several in flight, served in the order of their submission by a few threads. A request is read in
// pieces, one after the other: so the first of several is there when its own bytes are, not when all of theirs are.
//
// Bytes go straight to their place, or, where they are to be changed on the way, through memory of the reading thread into a sink.
//
// Knows files and memory, no experts and no slots.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "os/file.h"

namespace slotpool {

// Takes bytes out of a thread's hands and puts them, changed, where they belong. Called by several threads at a time.
class Sink {
   public:
    virtual ~Sink() = default;
    // `size` bytes, a multiple of the request's unit, that lie `offset` bytes behind its first; `to` is where that one belongs.
    virtual void put(const std::uint8_t *bytes, std::size_t offset, std::size_t size, std::uint8_t *to) const = 0;
};

// One read. Owned by who submits it, and must stay where it is until it is done.
struct ReadRequest {
    os::File *file = nullptr;
    std::uint64_t offset = 0;  // aligned as the file demands, like capacity and `to`
    std::size_t capacity = 0;
    std::size_t needed = 0;  // bytes that must be there
    std::uint8_t *to = nullptr;
    // With a sink nothing is aligned: `capacity` and `needed` are the bytes that it gets, pieces are multiples of `unit`.
    const Sink *sink = nullptr;
    std::size_t unit = 1;

    bool is_done() const { return state.load(std::memory_order_acquire) >= kDone; }
    bool is_failed() const { return state.load(std::memory_order_acquire) == kFailed; }

    static constexpr int kIdle = 0, kQueued = 1, kRunning = 2, kDone = 3, kFailed = 4;
    std::atomic<int> state{kIdle};
    std::string error{};  // one line, when it failed

    // The reader's own, under its lock.
    std::size_t begun_bytes = 0;  // whose reads have begun, or were given up
    std::size_t n_running = 0;    // pieces that are being read
    bool is_broken = false;       // a piece failed
};

class Reader {
   public:
    explicit Reader(int n_threads);
    ~Reader();  // waits for what runs; what is queued fails
    Reader(const Reader &) = delete;
    Reader &operator=(const Reader &) = delete;

    // Queues the request behind the others. It must be idle or done.
    void submit(ReadRequest &request);
    // Waits until the request is done; false when it failed. A request that was never submitted counts as done.
    bool wait(ReadRequest &request);
    // Gives up the pieces that nobody has begun and waits for those that run. Idle afterwards. Whoever waits or cancels is one
    // thread at a time.
    void cancel(ReadRequest &request);

   private:
    struct Piece {
        ReadRequest *request;
        std::size_t begin;
        std::size_t size;
    };
    void work();
    Piece take_piece();
    void end_piece(const Piece &piece, std::string error);
    void give_up_rest(ReadRequest &request);

    std::mutex mutex_;
    std::condition_variable is_work_;
    std::condition_variable is_done_;
    std::deque<ReadRequest *> queue_;
    std::vector<std::thread> threads_;
    bool is_closing_ = false;
};

}  // namespace slotpool
