// A stream: work in the order it was queued, executed by whoever waits for it (lazy) or by a thread of its own (threaded).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "compute.h"
#include "hazards.h"

namespace chaos {

class Stream {
   public:
    // Work is given what it was said to touch, and says why it failed, or nothing.
    using Work = std::function<std::string(const Touched &)>;

    Stream(Device &device, abi::Backend *cpu);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    Device &device() const { return device_; }
    // False, and nothing is queued, once work of this stream has failed.
    bool queue(Touch touch, Work work);
    void synchronize();
    abi::Status compute(const std::vector<abi::Tensor *> &nodes, const Touched &touch, std::string &error);

   private:
    struct Item {
        Touched touch;
        Work work;
    };

    void execute_one(std::unique_lock<std::mutex> &lock);
    void serve();

    Device &device_;
    abi::Backend *cpu_;
    Piece piece_;
    const bool is_threaded_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Item> items_;
    bool is_executing_ = false, is_ending_ = false, has_failed_ = false;
    std::thread worker_;
};

}  // namespace chaos
