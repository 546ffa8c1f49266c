// One model under one plan: what was planned, where its experts lie, and who counts.
//
// A session opens before the model is loaded and lives until it is closed and the last buffer and context of the model
// are gone. While it is open for loading, store buffers and contexts that are made belong to it.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "abi/ggml_abi.h"
#include "plan/plan.h"
#include "stats/stats.h"
#include "store/file_store.h"
#include "store/session_page.h"
#include "trace/recorder.h"

namespace slotpool {

class Session;

// An expert tensor in the store: where every expert always is. Host memory or a mapped file, so bytes can be read in place; or
// a file on disk, and then `base` is an address without memory.
// Shared by the buffer and the pools: a pool whose model is gone finds `base` null, not freed memory.
struct StoredTensor {
    const PlannedTensor *planned = nullptr;
    Session *session = nullptr;
    abi::Tensor shape{};                 // copy of the weight as the loader made it: type, ne, nb
    const std::uint8_t *base = nullptr;  // expert e is the slab at base + e * slab_bytes
    std::size_t slab_bytes = 0;
    const abi::Buffer *buffer = nullptr;  // the store buffer that holds it
    std::uint64_t serial = 0;             // unique in the process: an address may be reused by another model, this is not

    bool is_on_disk() const { return planned->file >= 0; }
    const std::uint8_t *slab(int expert) const { return base + static_cast<std::size_t>(expert) * slab_bytes; }
};

// A bias of an expert tensor in the store, [n, n_expert]: host memory, whole.
struct StoredBias {
    abi::Tensor tensor{};  // copy, as the loader made it
    std::uint64_t serial = 0;
};

// How many rows asked for each expert: of one pool, written by its computing thread alone.
using Heat = std::vector<Count>;

using StoredTensors = std::vector<std::shared_ptr<const StoredTensor>>;

class Session : public std::enable_shared_from_this<Session> {
   public:
    // `number` is what the page's readers tell the sessions of a process apart by.
    explicit Session(Plan made, int number);

    // Whether a weight that is being loaded is the planned one and has no place yet: a draft model may have tensors of the same
    // names, of this shape or another, and stays stock.
    bool wants(const abi::Tensor &weight);

    // Called by the loader, through our buffer, for each tensor that got its place. nullptr: not a planned tensor, or its
    // shape is not the planned one (then it stays an ordinary tensor, and the group's off_reason says why).
    std::shared_ptr<StoredTensor> add(const abi::Tensor &weight, const abi::Buffer &buffer);
    // The same for a planned bias. nullptr: none.
    std::shared_ptr<StoredBias> add_bias(const abi::Tensor &bias) const;
    // The buffer's memory goes: waits for whoever reads experts in it right now (`reading`).
    void forget(const abi::Buffer &buffer);
    // To be held by another thread than the one that computes while it reads an expert's bytes; a model may be freed before its contexts.
    // Where the tensor's base is null then, there is nothing to read any more.
    std::shared_lock<std::shared_mutex> reading() const { return std::shared_lock<std::shared_mutex>(memory_); }

    StoredTensors tensors_of(int group) const;
    bool is_stored(const std::string &name) const;
    // Of planned tensor number `tensor`: it had its place once, whether or not its model lives on.
    bool was_stored(int tensor) const;
    // The counters of one more context. When that is gone another may go on with them: only sums are ever read.
    std::shared_ptr<ContextCounts> add_context();
    // The same for the RAM tier behind the pools of a device: slots in RAM, what was found there and what was read from disk.
    std::shared_ptr<ContextCounts> add_ram_context();

    // The heat of one more pool of the group. When that pool is gone another may go on with it: only sums are ever read.
    std::shared_ptr<Heat> add_heat(int group);
    // Rows that asked for each expert of the group, of all its pools.
    std::vector<std::uint64_t> heat_of(int group) const;

    // Whether a llama context may have pools, of a plan for the first context only: nobody else has computed that still lives. Contexts are
    // compared, never followed.
    bool may_have_pools(const std::shared_ptr<const void> &llama_context) const;
    // The same of a context that computes: from now on the pools are its own, until it is gone.
    bool claim_pools(const std::shared_ptr<const void> &llama_context);

    // Sums over contexts; locks, so not for the computing thread's use.
    template <class Visit>
    void each_context(Visit visit) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto &context : contexts_) visit(*context);
    }

    template <class Visit>
    void each_ram_context(Visit visit) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto &context : ram_contexts_) visit(*context);
    }

    // Why a planned group is not pooled after all; empty when it is.
    std::string off_reason(int group) const;
    void switch_off(int group, const std::string &reason);
    // ggml's name of the device that has the group's slots; empty where the plan says auto and nobody has found it yet.
    std::string device_of(int group) const;
    void set_device(int group, const std::string &device);
    // An adapter computes from what stands between a group's matmuls: every row of it must exist where its node has it, from now on.
    void set_read_between(int group);
    bool is_read_between(int group) const;
    // The slots that a group really got, in the context that got the most of them; before any did, as planned.
    int slots_of(int group) const;
    // What an event may ask for at most so that every expert of it can have a slot.
    int usable_slots(int group) const;
    bool had_slots(int group) const;  // in some context
    void set_slots(int group, int slots);
    // Slots of the tensor hold its experts repacked; and the bytes of all experts of such tensors.
    void set_repacked(const StoredTensor &tensor);
    std::uint64_t repacked_bytes() const;
    // The slots in RAM of a group whose pool is on a device; -1: it has none.
    int ram_slots_of(int group) const;
    void set_ram_slots(int group, int slots);
    // What will be taken before the slots are: as the plan has it, or as it was said since where that is more. Bytes.
    std::uint64_t reserve() const;
    void add_reserve(std::uint64_t bytes);
    // The place of RAM among the page's devices.
    int ram_device() const { return std::max(page.find_device("CPU"), 0); }
    // What the pools of the session's contexts took of its RAM budget, bytes.
    std::uint64_t taken() const { return page.device(ram_device()).taken.get(); }
    void take(std::uint64_t bytes, int device) { page.device(device).taken.add(bytes); }
    void give_back(std::uint64_t bytes, int device) { page.device(device).taken.subtract(bytes); }
    // The experts on disk are not those of the model that was loaded: nothing may be computed from them. Empty: they are.
    std::string distrust() const;
    void set_distrust(const std::string &reason);
    // Why the last request failed; reading it forgets it.
    std::string take_failure();
    void fail(const std::string &failure);

    const Plan plan;
    SessionPage page;                           // where all counters are
    std::unique_ptr<FileStore> files;           // nullptr: experts are in host memory. Set before the session is used
    std::shared_ptr<trace::Recorder> recorder;  // nullptr: routing is not recorded. Set before the session is used

   private:
    bool fits(const abi::Tensor &weight, const PlannedTensor &planned);
    bool is_first(const std::shared_ptr<const void> &llama_context) const;  // under the lock
    std::size_t index_of(const PlannedTensor &planned) const;
    void end_context(ContextCounts *context);
    void end_ram_context(ContextCounts *context);

    mutable std::mutex mutex_;
    mutable std::shared_mutex memory_;  // of the experts; taken after mutex_
    std::vector<std::shared_ptr<StoredTensor>> tensors_;
    std::vector<std::unique_ptr<ContextCounts>> contexts_;
    std::vector<ContextCounts *> ended_;  // of contexts_, those whose context is gone
    std::vector<std::unique_ptr<ContextCounts>> ram_contexts_;
    std::vector<ContextCounts *> ended_ram_;
    std::vector<int> ram_slots_;                             // by group
    std::vector<std::vector<std::shared_ptr<Heat>>> heats_;  // by group
    std::weak_ptr<const void> first_context_;
    std::vector<std::string> off_reasons_;  // by group
    std::vector<std::string> devices_;      // by group
    std::vector<int> slots_;                // by group
    std::vector<bool> is_read_between_;     // by group
    std::vector<std::string> misfits_;      // by planned tensor: how the one that was offered differs
    std::vector<bool> was_stored_;          // by planned tensor
    std::vector<bool> is_repacked_;         // by planned tensor
    std::uint64_t reserve_ = 0;
    std::string distrust_;
    std::string failure_;
};

// The sessions of the process.
namespace sessions {

// Becomes the loading session of the calling thread, or of every thread (a program that knows nothing of us may load
// anywhere). Returns its number, or 0 and why in `error` when a planned file cannot be used.
int open(Plan plan, std::string &error, bool for_every_thread = false);
void end_loading();                        // from here on buffers and contexts belong to no session
std::shared_ptr<Session> loading();        // the calling thread's; nullptr when none is open for loading
std::shared_ptr<Session> get(int number);  // nullptr when closed or never opened
void close(int number);                    // buffers and contexts that still live keep theirs alive

}  // namespace sessions
}  // namespace slotpool
