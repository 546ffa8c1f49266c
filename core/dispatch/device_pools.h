// The pools of one context on its device, by group: made all at once at the first compute, dropped one by one when their model goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/context.h"
#include "dispatch/device_allotment.h"
#include "dispatch/device_pool.h"
#include "dispatch/dispatch.h"
#include "dispatch/expert_stream.h"
#include "dispatch/host_store.h"
#include "transfer/uploader.h"

namespace slotpool {

// The name that a plan knows the device by.
std::string planned_name(const Engine &engine);

class DevicePools {
   public:
    // `store`, `uploader` and `stream` outlive the pools.
    DevicePools(const Engine &engine, Context &context, HostStore &store, Uploader &uploader, ExpertStream &stream)
        : engine_(engine), api_(engine.api), context_(context), store_(store), uploader_(uploader), stream_(stream) {}
    ~DevicePools();
    DevicePools(const DevicePools &) = delete;
    DevicePools &operator=(const DevicePools &) = delete;

    // The pool of the tensor's group, made when there is none yet; nullptr where it has none. `n_used` experts a token.
    DevicePool *of(const StoredTensor &stored, std::int64_t n_used);
    // Another model may have taken the place of the one that a pool was filled from.
    void drop_lost(const StoredTensor &stored);
    // Where the session's page has this device; nullptr before there are pools.
    DeviceMemory *shown() const { return page_device_ < 0 ? nullptr : &context_.session()->page.device(page_device_); }
    // Room for experts that pass, where the plan has them pass and there are no pools that it comes before. False: there is none.
    bool has_stream(const StoredTensor &stored);
    int damage(std::size_t group, Damage damage);

   private:
    void make(std::int64_t n_used);
    bool is_here(std::size_t group) const;
    std::vector<StoredTensors> layers() const;
    bool make_stream(std::uint64_t &budget, std::int64_t n_used);
    bool leaves_enough(std::uint64_t budget, std::int64_t n_used) const;
    bool is_warm_up_too_large(const std::vector<int> &slots, std::int64_t n_used) const;
    std::string why_too_few(const PlannedGroup &group, int n_slots, std::int64_t n_used, const DeviceRoom &room) const;
    bool make_pool(std::size_t group, int n_slots, std::string &error);
    void warm(std::size_t group, HostSlabs &slabs);

    const Engine engine_;
    const abi::Api &api_;
    Context &context_;
    HostStore &store_;
    Uploader &uploader_;
    ExpertStream &stream_;
    bool was_stream_tried_ = false;
    std::vector<std::unique_ptr<DevicePool>> pools_;  // by group
    bool are_made_ = false;
    int page_device_ = -1;       // of the session's page
    std::uint64_t taken_ = 0;    // bytes of the device
    std::uint64_t staging_ = 0;  // of them: room for experts that pass
};

}  // namespace slotpool
