// A lock that serves who came first, as links do: with a mutex a thread that copies piece after piece would keep all others away.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace chaos {

class Queue {
   public:
    void lock() {
        std::unique_lock<std::mutex> lock(mutex_);
        const std::uint64_t mine = n_came_++;
        is_next_.wait(lock, [&] { return mine == n_served_; });
    }
    void unlock() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            n_served_++;
        }
        is_next_.notify_all();
    }

   private:
    std::mutex mutex_;
    std::condition_variable is_next_;
    std::uint64_t n_came_ = 0;
    std::uint64_t n_served_ = 0;
};

}  // namespace chaos
