#include "dispatch/device_pools.h"

#include <algorithm>

#include "dispatch/pool_damage.h"

namespace slotpool {

std::string planned_name(const Engine &engine) {
    return engine.api.dev_type(engine.device) == abi::DeviceType::cpu ? "CPU" : engine.api.dev_name(engine.device);
}

DevicePools::~DevicePools() {
    pools_.clear();
    if (shown() == nullptr) return;
    shown()->staging.subtract(staging_);
    context_.session()->give_back(taken_, page_device_);
}

DevicePool *DevicePools::of(const StoredTensor &stored, std::int64_t n_used) {
    if (stored.session != context_.session().get() || !context_.has_pools()) return nullptr;
    if (!are_made_) make(n_used);
    return pools_[static_cast<std::size_t>(stored.planned->group)].get();
}

void DevicePools::drop_lost(const StoredTensor &stored) {
    const auto group = static_cast<std::size_t>(stored.planned->group);
    if (!are_made_ || stored.session != context_.session().get() || !pools_[group] || pools_[group]->holds(stored)) return;
    pools_[group].reset();
    store_.forget(group);
}

// All pools of the device at once, at the first compute: everything else that wants its memory is there by then.
void DevicePools::make(std::int64_t n_used) {
    Session &session = *context_.session();
    pools_.resize(session.plan.groups.size());
    const std::string name = planned_name(engine_);
    const PlannedDevice *planned = name == "CPU" ? nullptr : session.plan.find_device(name);
    page_device_ = session.page.find_device(name);
    const std::uint64_t taken = page_device_ >= 0 ? shown()->taken.get() : 0;
    DeviceRoom room = device_room(api_, engine_.device, planned, taken);
    if (page_device_ >= 0) session.page.set_device(page_device_, room.budget + std::min(taken, ~room.budget), room.free);
    std::vector<int> slots = device_slots(api_, engine_.device, session, room.budget);
    are_made_ = !is_warm_up_too_large(slots, n_used);
    if (are_made_ && make_stream(room.budget, n_used)) slots = device_slots(api_, engine_.device, session, room.budget);
    for (std::size_t group = 0; are_made_ && group < slots.size(); group++) {
        const auto number = static_cast<int>(group);
        if (!is_here(group)) continue;
        std::string reason = why_too_few(session.plan.groups[group], slots[group], n_used, room);
        if (reason.empty()) make_pool(group, slots[group], reason);
        // Its slots stay planned: graphs of other shapes than were reserved would want more of a memory that has none left. An earlier context
        // may have had less room, or more.
        if (reason.empty() || !session.had_slots(number)) session.switch_off(number, reason);
    }
}

// ---- room for what passes ----

bool DevicePools::has_stream(const StoredTensor &stored) {
    const int group = stored.planned->group;
    if (stored.session != context_.session().get()) return false;
    std::string error;  // nobody has slots here, so nobody would read it
    if (!was_stream_tried_ && !context_.has_pools()) stream_.make_room(layers(), stored.session->plan.poison, error);
    was_stream_tried_ = was_stream_tried_ || !context_.has_pools();
    return stream_.has_room_for(stored.session->tensors_of(group));
}

// Before the slots, which get what is left; not where that would be too few for a token.
bool DevicePools::make_stream(std::uint64_t &budget, std::int64_t n_used) {
    Session &session = *context_.session();
    if (session.plan.prefill == Prefill::bypass || planned_name(engine_) == "CPU" || session.plan.reads_files()) return false;
    was_stream_tried_ = true;
    const std::uint64_t bytes = stream_.room_bytes(layers());
    std::string error;
    if (bytes > budget || (leaves_enough(budget, n_used) && !leaves_enough(budget - bytes, n_used))) return false;
    if (!stream_.make_room(layers(), session.plan.poison, error)) return false;
    budget -= bytes;
    if (shown() != nullptr) shown()->staging.add(bytes);
    if (shown() != nullptr) session.take(bytes, page_device_);
    taken_ += bytes;
    staging_ = bytes;
    return true;
}

bool DevicePools::leaves_enough(std::uint64_t budget, std::int64_t n_used) const {
    const std::vector<int> slots = device_slots(api_, engine_.device, *context_.session(), budget);
    for (std::size_t group = 0; group < slots.size(); group++) {
        const int n_expert = context_.session()->plan.groups[group].n_expert;
        if (is_here(group) && slots[group] < std::min<std::int64_t>(n_used, n_expert)) return false;
    }
    return true;
}

std::vector<StoredTensors> DevicePools::layers() const {
    std::vector<StoredTensors> found;
    for (std::size_t group = 0; group < context_.session()->plan.groups.size(); group++) {
        if (is_here(group)) found.push_back(context_.session()->tensors_of(static_cast<int>(group)));
    }
    return found;
}

// ---- pools ----

bool DevicePools::is_here(std::size_t group) const {
    const auto number = static_cast<int>(group);
    return context_.session()->device_of(number) == planned_name(engine_) && !context_.session()->tensors_of(number).empty();
}

// An engine that warms up asks for every expert of a layer. That says nothing of what a token uses: the pools wait for one that does.
bool DevicePools::is_warm_up_too_large(const std::vector<int> &slots, std::int64_t n_used) const {
    const Session &session = *context_.session();
    bool is_too_large = false;
    for (std::size_t group = 0; group < slots.size(); group++) {
        if (!is_here(group)) continue;
        if (session.plan.groups[group].n_expert > n_used) return false;
        is_too_large = is_too_large || slots[group] < session.plan.groups[group].n_expert;
    }
    return is_too_large;
}

// A pool that one token does not fit into serves nothing. Empty: it fits.
std::string DevicePools::why_too_few(const PlannedGroup &group, int n_slots, std::int64_t n_used, const DeviceRoom &room) const {
    if (n_slots >= std::min<std::int64_t>(n_used, group.n_expert)) return {};
    return context_.device() + " has room for " + std::to_string(n_slots) + " slots, a token uses " + std::to_string(n_used) + " (" +
           std::to_string(room.budget >> 20) + " MiB are for slots, " + std::to_string(room.free >> 20) + " MiB are free)";
}

bool DevicePools::make_pool(std::size_t group, int n_slots, std::string &error) {
    const StoredTensors tensors = context_.session()->tensors_of(static_cast<int>(group));
    HostSlabs *slabs = tensors.empty() ? nullptr : store_.of(*tensors.front());
    if (slabs == nullptr) return true;  // nobody asks for them
    pools_[group] = DevicePool::make(api_, engine_.device, *context_.session(), static_cast<int>(group), n_slots, *slabs, uploader_,
                                     context_.counts(group), error);
    if (!pools_[group]) return false;
    warm(group, *slabs);
    context_.session()->set_slots(static_cast<int>(group), n_slots);
    const std::uint64_t bytes = static_cast<std::uint64_t>(n_slots) * pools_[group]->slab_bytes();
    if (page_device_ >= 0) context_.session()->take(bytes, page_device_);
    taken_ += bytes;
    return true;
}

// Where no other device's kernels may compute a miss, or slots stay as they are, everything is there before the first event.
void DevicePools::warm(std::size_t group, HostSlabs &slabs) {
    const Plan &plan = context_.session()->plan;
    const bool is_awaited = plan.misses == Misses::copy || plan.misses == Misses::frozen || plan.is_settled;
    DevicePool &pool = *pools_[group];
    pool.warm(warm_set(plan, plan.groups[group], pool.n_slots()), is_awaited);
    slabs.warm(std::min(pool.n_slots(), static_cast<int>(plan.groups[group].warm.size())));
}

int DevicePools::damage(std::size_t group, Damage damage) {
    if (group >= pools_.size() || !pools_[group]) return 0;
    DevicePool &pool = *pools_[group];
    pool.settle();
    if (damage == Damage::swapped_slots) return swap_used_slots(pool.pool());
    const std::vector<int> used = slots_to_change(pool.pool(), damage);
    for (const int slot : used) pool.slots().flip_bit(0, slot);
    return static_cast<int>(used.size());
}

}  // namespace slotpool
