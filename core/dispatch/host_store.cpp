#include "dispatch/host_store.h"

#include <mutex>
#include <optional>

#include "dispatch/allotment.h"
#include "dispatch/ram_slabs.h"

namespace slotpool {

HostStore::~HostStore() {
    slabs_.clear();
    if (taken_ > 0) context_.session()->give_back(taken_, context_.session()->ram_device());
}

HostSlabs *HostStore::of(const StoredTensor &stored) {
    const auto group = static_cast<std::size_t>(stored.planned->group);
    if (!context_.may_serve(stored)) {
        if (stored.is_on_disk()) return nullptr;
        others_ = slabs_in_memory(stored.session->tensors_of(stored.planned->group));
        return others_.get();
    }
    std::string error;
    if (!prepare(error)) {
        context_.session()->fail(error);
        return nullptr;
    }
    if (slabs_[group] && slabs_[group]->index_of(stored) < 0) forget(group);  // the model of these is gone
    if (!slabs_[group] && !stored.is_on_disk()) slabs_[group] = slabs_in_memory(context_.session()->tensors_of(stored.planned->group));
    if (!slabs_[group] && !make_ram_slabs(group, error)) context_.session()->fail(error);
    return slabs_[group].get();
}

void HostStore::forget(std::size_t group) {
    if (group < slabs_.size()) slabs_[group].reset();
}

bool HostStore::is_here(std::size_t group) const {
    const auto number = static_cast<int>(group);
    return context_.session()->device_of(number) == device_ && !context_.session()->tensors_of(number).empty();
}

bool HostStore::prepare(std::string &error) {
    if (is_ready_) return true;
    slabs_.resize(context_.session()->plan.groups.size());
    is_ready_ = !context_.session()->files || make_ram_tier(error);
    return is_ready_;
}

// All slots of the device's groups at once and by one context at a time, so that the next one sees what was promised.
bool HostStore::make_ram_tier(std::string &error) {
    Session &session = *context_.session();
    const std::lock_guard<std::mutex> lock(one_allotment_at_a_time());
    source_ = make_slab_source(session);
    const std::optional<Allotment> allotment = allot(session, *source_, device_, error);
    if (!allotment) return false;
    if (!ram_counts_) ram_counts_ = session.add_ram_context();
    slots_ = allotment->slots;
    waves_ = std::make_unique<SlabWaves>(*source_, allotment->ring_bytes);
    bool is_made = waves_->is_there();
    if (!is_made) error = "Expected memory for " + std::to_string(allotment->ring_bytes) + " bytes of experts on their way from disk, found none";
    for (std::size_t group = 0; group < slots_.size() && is_made; group++) is_made = !is_here(group) || make_ram_slabs(group, error);
    if (!is_made) {
        for (auto &slabs : slabs_) slabs.reset();
        waves_.reset();
        return false;
    }
    taken_ = allotment->taken;
    session.take(taken_, session.ram_device());
    session.page.set_device(session.ram_device(), allotment->budget, allotment->available);
    return true;
}

bool HostStore::make_ram_slabs(std::size_t group, std::string &error) {
    Session &session = *context_.session();
    abi::Device *cpu = api_.dev_by_type(abi::DeviceType::cpu);
    auto pool = LayerPool::make(api_, cpu, session, static_cast<int>(group), slots_[group], *source_, ram_counts_->groups[group], error);
    if (!pool) return false;
    session.set_ram_slots(static_cast<int>(group), slots_[group]);
    slabs_[group] = std::make_unique<RamSlabs>(std::move(pool), *waves_, session.plan);
    return true;
}

}  // namespace slotpool
