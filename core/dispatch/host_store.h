// The host's part in serving a device, in one context: for each group of that device where its slabs are. Over a disk that is the RAM tier:
// slots in RAM for every group, made at the first compute and all at once, and room for slabs that get none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/ggml_api.h"
#include "dispatch/context.h"
#include "transfer/host_slabs.h"
#include "transfer/slab_source.h"
#include "transfer/slab_waves.h"

namespace slotpool {

class HostStore {
   public:
    // `device` by the name that the plan's groups know.
    HostStore(const abi::Api &api, std::string device, Context &context) : api_(api), device_(std::move(device)), context_(context) {}
    ~HostStore();
    HostStore(const HostStore &) = delete;
    HostStore &operator=(const HostStore &) = delete;

    // The slabs of the tensor's group, for as long as its model lives. nullptr, with the reason left in the tensor's session: a disk whose
    // experts cannot be brought; the next request tries again.
    HostSlabs *of(const StoredTensor &stored);
    // Lets go of a group whose model is gone. Nobody may use its slabs.
    void forget(std::size_t group);

   private:
    bool prepare(std::string &error);
    bool make_ram_tier(std::string &error);
    bool make_ram_slabs(std::size_t group, std::string &error);
    bool is_here(std::size_t group) const;

    const abi::Api &api_;
    const std::string device_;
    Context &context_;
    bool is_ready_ = false;
    std::unique_ptr<SlabSource> source_;  // of a disk, like everything up to slabs_
    std::unique_ptr<SlabWaves> waves_;
    std::shared_ptr<ContextCounts> ram_counts_;
    std::vector<int> slots_;                         // in RAM, by group
    std::uint64_t taken_ = 0;                        // of the session's RAM budget
    std::vector<std::unique_ptr<HostSlabs>> slabs_;  // by group
    std::unique_ptr<HostSlabs> others_;              // of another session's tensor
};

}  // namespace slotpool
