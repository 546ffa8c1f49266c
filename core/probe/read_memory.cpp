// Plain reads of memory by several threads: the most that any computation on them can get.
#include <atomic>
#include <system_error>
#include <vector>

#include "os/memory.h"
#include "os/thread.h"
#include "probe/work.h"

namespace slotpool::probe {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::uint8_t kByte = 0x33;

// Four sums, so that the additions do not wait for each other.
std::uint64_t sum_of(const std::uint64_t *at, std::size_t n_words) {
    std::uint64_t sums[4] = {};
    for (std::size_t i = 0; i + 4 <= n_words; i += 4) {
        for (std::size_t j = 0; j < 4; j++) sums[j] += at[i + j];
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

class Read : public Work {
   public:
    Read(void *base, std::size_t share, int n_threads) : base_(static_cast<std::uint8_t *>(base)), share_(share), n_threads_(n_threads) {
        on_all([this](std::size_t i) { std::fill_n(base_ + i * share_, share_, kByte); });  // a thread's part is where the thread is
    }
    ~Read() override { os::release_memory(base_, bytes()); }

    std::uint64_t once() override {
        on_all(
            [this](std::size_t i) { seen_ += sum_of(reinterpret_cast<const std::uint64_t *>(base_ + i * share_), share_ / sizeof(std::uint64_t)); });
        return bytes();
    }

   private:
    std::size_t bytes() const { return share_ * static_cast<std::size_t>(n_threads_); }

    template <class Function>
    void on_all(Function work) {
        std::vector<std::thread> threads;
        try {
            for (int i = 1; i < n_threads_; i++) threads.push_back(os::start_thread([=] { work(static_cast<std::size_t>(i)); }));
        } catch (const std::system_error &) {
            // no thread left: the parts that have none are read here
        }
        for (std::size_t i = threads.size() + 1; i < static_cast<std::size_t>(n_threads_); i++) work(i);
        work(0);
        for (std::thread &thread : threads) thread.join();
    }

    std::uint8_t *base_;
    std::size_t share_;
    int n_threads_;
    std::atomic<std::uint64_t> seen_{0};  // the sums must be used for something, else nobody reads
};

}  // namespace

std::unique_ptr<Work> read_memory(std::uint64_t bytes, int n_threads, std::string &error) {
    const std::size_t share = bytes / static_cast<std::size_t>(n_threads) / kLine * kLine;
    void *base = share == 0 ? nullptr : os::reserve_memory(share * static_cast<std::size_t>(n_threads));
    if (base != nullptr) return std::make_unique<Read>(base, share, n_threads);
    error = "Expected " + std::to_string(bytes) + " bytes of memory for " + std::to_string(n_threads) + " threads, found none";
    return nullptr;
}

}  // namespace slotpool::probe
