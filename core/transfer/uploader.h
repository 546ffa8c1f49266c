// Copies of slabs into slots on a thread of their own: the device's copy path, beside whatever it computes. What the compute waits for
// goes before what is copied for later. That is made in short pieces and steps aside for every other use of the link.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

// Owned by who submits it, and must stay where it is until it is done, like the tensor. The bytes may go with the model that has the expert:
// what was not copied then never will be, and its slot is nobody's.
struct Upload {
    const StoredTensor *expert = nullptr;
    abi::Tensor *to = nullptr;
    std::size_t offset = 0;
    const std::uint8_t *from = nullptr;
    std::size_t bytes = 0;
    std::atomic<bool> is_done{true};
    // The uploader's own until it is done.
    bool is_urgent = false;
    std::size_t n_copied = 0;
    std::uint64_t took_ns = 0;
};

class Uploader {
   public:
    explicit Uploader(const abi::Api &api);
    ~Uploader();  // what is queued is not copied; what runs ends
    Uploader(const Uploader &) = delete;
    Uploader &operator=(const Uploader &) = delete;

    // As long as it lives nothing is copied for later: somebody computes and wants the link for a moment. Whoever holds it waits for no upload
    // that is not urgent.
    class Pause {
       public:
        explicit Pause(Uploader &uploader);
        ~Pause();
        Pause(const Pause &) = delete;
        Pause &operator=(const Pause &) = delete;

       private:
        Uploader &uploader_;
    };

    void submit(Upload &upload, bool is_urgent);
    void wait(const Upload &upload);
    // Bytes that are to be copied for later and not copied yet, whoever's they are.
    std::size_t later_bytes() const { return later_bytes_.load(std::memory_order_relaxed); }
    // Of the pieces copied lately, nanoseconds; 0: none yet.
    double ns_per_byte() const { return ns_per_byte_.load(std::memory_order_relaxed); }

   private:
    void work();
    bool has_work() const { return !urgent_.empty() || (!later_.empty() && n_pauses_ == 0); }
    void copy_piece(Upload &upload, std::size_t most);
    void has_copied(Upload &upload, std::size_t n);
    std::size_t short_piece() const;

    const abi::Api &api_;
    std::mutex mutex_;
    std::condition_variable is_work_;
    std::condition_variable is_done_;
    std::deque<Upload *> urgent_;
    std::deque<Upload *> later_;
    std::atomic<double> ns_per_byte_{0.0};
    std::atomic<std::size_t> later_bytes_{0};
    int n_pauses_ = 0;
    bool is_closing_ = false;
    std::thread thread_;
};

}  // namespace slotpool
