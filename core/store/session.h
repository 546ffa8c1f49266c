// One model under one plan: what was planned, where its experts lie, and who counts.
//
// A session opens before the model is loaded and lives until it is closed and the last buffer and context of the model
// are gone. While it is open for loading, store buffers and contexts that are made belong to it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "abi/ggml_abi.h"
#include "plan/plan.h"
#include "stats/stats.h"

namespace slotpool {

class Session;

// An expert tensor in the store: where every expert always is. Host memory or a mapped file, so bytes can be read in place.
struct StoredTensor {
    const PlannedTensor *planned = nullptr;
    Session *session = nullptr;
    abi::Tensor shape{};                 // copy of the weight as the loader made it: type, ne, nb
    const std::uint8_t *base = nullptr;  // expert e is the slab at base + e * slab_bytes
    std::size_t slab_bytes = 0;
    const abi::Buffer *buffer = nullptr;  // the store buffer that holds it
    std::uint64_t serial = 0;             // unique in the process: an address may be reused by another model, this is not

    const std::uint8_t *slab(int expert) const { return base + static_cast<std::size_t>(expert) * slab_bytes; }
};

// The counters of one context, one entry per planned group.
struct ContextCounts {
    explicit ContextCounts(std::size_t n_groups) : groups(n_groups) {}
    std::vector<GroupCounts> groups;
    bool is_open = true;
};

class Session : public std::enable_shared_from_this<Session> {
   public:
    explicit Session(Plan made) : plan(std::move(made)) {}

    // Called by the loader, through our buffer, for each tensor that got its place. nullptr: not a planned tensor, or its
    // shape is not the planned one (then it stays an ordinary tensor, and `problem` says why).
    StoredTensor *add(const abi::Tensor &weight, const abi::Buffer &buffer);
    void forget(const abi::Buffer &buffer);

    std::vector<const StoredTensor *> tensors_of(int group) const;
    std::shared_ptr<ContextCounts> add_context();

    // Sums over contexts; locks, so not for the computing thread's use.
    template <class Visit>
    void each_context(Visit visit) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto &context : contexts_) visit(*context);
    }
    bool is_stored(const std::string &name) const;
    std::string problem() const;
    void report(const std::string &problem);

    const Plan plan;

   private:
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<StoredTensor>> tensors_;
    std::vector<std::shared_ptr<ContextCounts>> contexts_;
    std::string problem_;
};

// The sessions of the process.
namespace sessions {

int open(Plan plan);                       // becomes the loading session; returns its number
void end_loading();                        // from here on buffers and contexts belong to no session
std::shared_ptr<Session> loading();        // nullptr when none is open for loading
std::shared_ptr<Session> get(int number);  // nullptr when closed or never opened
void close(int number);                    // buffers and contexts that still live keep theirs alive

}  // namespace sessions
}  // namespace slotpool
