#include "dispatch/device_pool.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "dispatch/host_waves.h"

namespace slotpool {
namespace {

constexpr std::int64_t kRowsOfOtherKernels = 8;  // an expert with so many rows is computed by other kernels of the CPU

}  // namespace

std::unique_ptr<DevicePool> DevicePool::make(const abi::Api &api, abi::Device *device, Session &session, int group, int n_slots, HostSlabs &slabs,
                                             Uploader &uploader, GroupCounts &counts, std::string &error) {
    const StoredTensors tensors = session.tensors_of(group);
    auto slots = DeviceSlots::allocate(api, device, tensors, n_slots, session.plan.poison, error);
    if (!slots) return nullptr;
    const PlannedGroup &planned = session.plan.groups[static_cast<std::size_t>(group)];
    std::unique_ptr<DevicePool> made(new DevicePool(tensors, planned, session.plan, std::move(slots), n_slots, slabs, uploader, counts));
    made->heat_ = session.add_heat(group);
    // a context has one uploader: it tells contexts apart
    if (session.recorder && session.plan.is_recorded(group))
        made->trace_ = session.recorder->add_ring(planned.layer, planned.pass == "chexps", planned.n_expert, &uploader);
    return made;
}

DevicePool::DevicePool(const StoredTensors &tensors, const PlannedGroup &group, const Plan &plan, std::unique_ptr<DeviceSlots> slots, int n_slots,
                       HostSlabs &slabs, Uploader &uploader, GroupCounts &counts)
    : tensors_(tensors),
      slots_(std::move(slots)),
      pool_(group.n_expert, n_slots, make_policy(plan.policy, plan.decay, group.n_expert, n_slots)),
      slabs_(slabs),
      uploader_(uploader),
      counts_(counts),
      n_usable_(plan.usable_slots(group, n_slots)),
      uploads_(static_cast<std::size_t>(n_slots) * tensors.size()),
      is_later_(static_cast<std::size_t>(n_slots), false),
      event_served_(tensors.size(), true),
      slot_of_expert_(static_cast<std::size_t>(group.n_expert), kNone),
      used_by_(static_cast<std::size_t>(n_slots), Use::nobody),
      order_(tensors.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    for (const auto &tensor : tensors_) {
        serials_.push_back(tensor->serial);
        slab_bytes_ += tensor->slab_bytes;
    }
}

DevicePool::~DevicePool() { settle(); }

// ---- what the slots begin with ----

void DevicePool::warm(const WarmSet &set, bool is_awaited) {
    if (set.hottest.empty()) return;
    const std::vector<Lookup> warmed = pool_.warm(set.hottest, set.n_kept);
    for (const Lookup &lookup : warmed) slots_->poison(lookup.slot);
    tensors_[0]->is_on_disk() ? read_warm(warmed) : copy_warm(warmed, is_awaited);
    awaits_all_ = is_awaited;
    counts_.warmed.add(warmed.size());
    counts_.pinned.set(std::min(warmed.size(), static_cast<std::size_t>(set.n_kept)));
    counts_.uploads_in_flight.set(on_their_way_.size());
}

void DevicePool::copy_warm(const std::vector<Lookup> &warmed, bool is_awaited) {
    for (const Lookup &lookup : warmed) {
        on_their_way_.push_back(lookup.slot);
        is_later_[static_cast<std::size_t>(lookup.slot)] = !is_awaited;
        if (!is_awaited) warming_.push_back(lookup.slot);
        for (std::size_t index = 0; index < tensors_.size(); index++) begin_copy(lookup.slot, index, is_awaited);
    }
}

// The host has no place for them: they pass through. What does not come is a miss, and whoever asks for it is told why.
void DevicePool::read_warm(const std::vector<Lookup> &warmed) {
    const std::size_t most = slabs_.n_in_wave(order_);
    std::string error;
    for (std::size_t first = 0; first < warmed.size(); first += most) {
        std::vector<int> wave;
        for (std::size_t i = first; i < std::min(warmed.size(), first + most); i++) wave.push_back(warmed[i].slot);
        if (copy_wave(wave, error)) continue;
        for (const int slot : wave) pool_.abandon(slot);
    }
}

bool DevicePool::holds(const StoredTensor &stored) const {
    const auto is_there = [](const auto &tensor) { return tensor->base != nullptr; };
    return index_of(stored) >= 0 && std::all_of(tensors_.begin(), tensors_.end(), is_there);
}

int DevicePool::index_of(const StoredTensor &stored) const {
    const auto found = std::find(serials_.begin(), serials_.end(), stored.serial);
    return found == serials_.end() ? -1 : static_cast<int>(found - serials_.begin());
}

bool DevicePool::begins_event(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch) const {
    return ubatch != event_ubatch_ || event_served_[static_cast<std::size_t>(index_of(stored))] || !(routing == event_);
}

void DevicePool::mark_served(const StoredTensor &stored) {
    const auto index = static_cast<std::size_t>(index_of(stored));
    event_served_[index] = true;
    const auto place = std::find(order_.begin(), order_.end(), index);
    std::rotate(order_.begin() + static_cast<std::ptrdiff_t>(n_asked_), place, place + 1);
    n_asked_++;
}

// ---- what is on its way ----

bool DevicePool::has_arrived(int slot) const {
    for (std::size_t index = 0; index < tensors_.size(); index++) {
        if (!upload(slot, index).is_done.load(std::memory_order_acquire)) return false;
    }
    return true;
}

// An event that has rows on both sides needs idle slots for those of the CPU: with the first few of the warm set it would wait for all of it.
void DevicePool::publish_arrived() {
    if (std::all_of(warming_.begin(), warming_.end(), [this](int slot) { return has_arrived(slot); })) warming_.clear();
    const auto is_there = [this](int slot) {
        if (!has_arrived(slot) || is_warming(slot)) return false;
        pool_.publish(slot);
        for (std::size_t index = 0; index < tensors_.size(); index++) phase_counts().copy_ns.add(upload(slot, index).took_ns);
        if (!is_later_[static_cast<std::size_t>(slot)]) return true;
        slabs_.unpin(pool_.expert_in(slot));
        is_later_[static_cast<std::size_t>(slot)] = false;
        return true;
    };
    on_their_way_.erase(std::remove_if(on_their_way_.begin(), on_their_way_.end(), is_there), on_their_way_.end());
}

void DevicePool::settle() {
    for (const int slot : on_their_way_) {
        for (std::size_t index = 0; index < tensors_.size(); index++) uploader_.wait(upload(slot, index));
    }
    publish_arrived();
}

void DevicePool::wait(std::size_t index) {
    for (const int slot : copied_) uploader_.wait(upload(slot, index));
}

// ---- the event ----

bool DevicePool::look_up(const StoredTensor &stored, const Routing &routing, std::uint64_t ubatch, bool is_settled, std::string &error) {
    for (const int slot : copied_) {  // of an event that ended early: the host may move slabs from here on
        for (std::size_t index = 0; index < tensors_.size(); index++) uploader_.wait(upload(slot, index));
    }
    is_settled || awaits_all_ ? settle() : publish_arrived();
    awaits_all_ = false;
    event_ubatch_ = 0;
    if (!pool_.look_up(routing.ids.data(), routing.ids.size(), lookups_)) {
        error = "Expected expert ids from 0 to " + std::to_string(pool_.n_expert() - 1) + " in " + stored.planned->name +
                ", found one outside. The router's output is damaged (NaN?): this request fails, the pool is unchanged";
        return false;
    }
    event_ = routing;
    event_ubatch_ = ubatch;
    event_served_.assign(event_served_.size(), false);
    n_asked_ = 0;
    copied_.clear();
    for_later_.clear();
    n_admitted_ = 0;
    const auto is_miss = [](const Lookup &lookup) { return !lookup.is_hit; };
    n_misses_ = static_cast<int>(std::count_if(lookups_.begin(), lookups_.end(), is_miss));
    return true;
}

const std::vector<std::int32_t> &DevicePool::missed_rows() {
    for (const Lookup &lookup : lookups_) slot_of_expert_[static_cast<std::size_t>(lookup.expert)] = lookup.is_hit ? lookup.slot : kNone;
    missed_rows_.clear();
    const auto is_missed = [this](std::int32_t expert) { return slot_of_expert_[static_cast<std::size_t>(expert)] == kNone; };
    std::copy_if(event_.ids.begin(), event_.ids.end(), std::back_inserter(missed_rows_), is_missed);
    return missed_rows_;
}

bool DevicePool::serve(const MissPlan &plan, Phase phase, std::string &error) {
    phase_ = phase;
    has_begun_copies_ = false;
    if (trace_) trace_->push(event_ubatch_, phase == Phase::prompt, event_.n_used, event_.ids);
    take_slots(plan);
    if (!map_rows(error)) return false;
    count();
    return true;
}

bool DevicePool::begin_copies(std::string &error) {
    if (has_begun_copies_) return true;
    has_begun_copies_ = true;
    return begin_copies_of_kept(error) && copy_in_waves(error);
}

// What the host has for a moment only is copied within the event or not at all.
void DevicePool::take_slots(const MissPlan &plan) {
    for (const Lookup &lookup : lookups_) slot_of_expert_[static_cast<std::size_t>(lookup.expert)] = lookup.is_hit ? lookup.slot : kNone;
    const std::vector<Lookup *> ranked = n_misses_ == 0 ? std::vector<Lookup *>() : pool_.rank(lookups_);
    for (Lookup *lookup : ranked) {
        if (plan.is_frozen && !pool_.has_free_slot()) break;
        if (static_cast<int>(copied_.size()) < plan.n_copied && pool_.admit(*lookup, false)) {
            slot_of_expert_[static_cast<std::size_t>(lookup->expert)] = lookup->slot;
            copied_.push_back(lookup->slot);
        } else if (n_admitted_ < plan.n_admitted && slabs_.is_kept(lookup->expert) && pool_.admit(*lookup, true)) {
            for_later_.push_back(lookup->slot);
            n_admitted_++;
        }
    }
    for (const int slot : copied_) slots_->poison(slot);
    for (const int slot : for_later_) slots_->poison(slot);
}

void DevicePool::begin_copy(int slot, std::size_t index, bool is_urgent) {
    Upload &one = upload(slot, index);
    one.expert = tensors_[index].get();
    one.to = slots_->tensor(index);
    one.offset = slots_->offset(index, slot);
    one.from = slabs_.slab(index, pool_.expert_in(slot));
    one.bytes = tensors_[index]->slab_bytes;
    uploader_.submit(one, is_urgent);
}

// tensor by tensor: the first matmul of the layer begins when its slabs are there, not when all are
bool DevicePool::begin_copies_of_kept(std::string &error) {
    for (const std::size_t index : order_) {
        for (const int slot : copied_) {
            const int expert = pool_.expert_in(slot);
            if (!slabs_.is_kept(expert)) continue;
            if (!slabs_.wait(index, expert, error)) return false;
            begin_copy(slot, index, true);
        }
    }
    for (const int slot : copied_) {
        if (slabs_.is_kept(pool_.expert_in(slot))) on_their_way_.push_back(slot);
    }
    return true;
}

bool DevicePool::copy_in_waves(std::string &error) {
    const std::size_t most = slabs_.n_in_wave(order_);
    std::vector<int> wave;
    for (const int slot : copied_) {
        if (slabs_.is_kept(pool_.expert_in(slot))) continue;
        wave.push_back(slot);
        if (wave.size() < most) continue;
        if (!copy_wave(wave, error)) return false;
        wave.clear();
    }
    return wave.empty() || copy_wave(wave, error);
}

bool DevicePool::copy_wave(const std::vector<int> &slots, std::string &error) {
    std::vector<std::int32_t> experts;
    for (const int slot : slots) experts.push_back(pool_.expert_in(slot));
    slabs_.begin_wave(experts, order_);
    const bool has_come = slabs_.wait_for_wave(error);
    for (std::size_t i = 0; i < slots.size() * order_.size() && has_come; i++) begin_copy(slots[i % slots.size()], order_[i / slots.size()], true);
    for (const int slot : slots) {
        for (std::size_t index = 0; index < tensors_.size(); index++) uploader_.wait(upload(slot, index));
    }
    slabs_.end_wave();
    if (has_come) on_their_way_.insert(on_their_way_.end(), slots.begin(), slots.end());
    return has_come;
}

bool DevicePool::copy_for_later(std::string &error) {
    for (const int slot : for_later_) {
        for (const std::size_t index : order_) {
            if (!slabs_.wait(index, pool_.expert_in(slot), error)) return false;
        }
    }
    for (const int slot : for_later_) {
        slabs_.pin(pool_.expert_in(slot));
        on_their_way_.push_back(slot);
        is_later_[static_cast<std::size_t>(slot)] = true;
        for (const std::size_t index : order_) begin_copy(slot, index, false);
    }
    for_later_.clear();
    counts_.uploads_in_flight.set(on_their_way_.size());
    return true;
}

void DevicePool::give_up_event() {
    event_ubatch_ = 0;
    const auto is_on_its_way = [this](int slot) { return std::find(on_their_way_.begin(), on_their_way_.end(), slot) != on_their_way_.end(); };
    for (const std::vector<int> *taken : {&copied_, &for_later_}) {
        for (const int slot : *taken) {
            for (std::size_t index = 0; index < tensors_.size(); index++) uploader_.wait(upload(slot, index));
            if (pool_.is_filling(slot) && !is_on_its_way(slot)) pool_.abandon(slot);
        }
    }
    publish_arrived();
    copied_.clear();
    for_later_.clear();
}

// ---- an event that passes ----

const std::vector<Lookup> &DevicePool::pass(const Routing &routing, std::uint64_t ubatch, Phase phase, bool is_settled) {
    abandon_passed();
    is_settled ? settle() : publish_arrived();
    event_ubatch_ = 0;  // the lookups of an event are gone
    if (trace_) trace_->push(ubatch, phase == Phase::prompt, routing.n_used, routing.ids);
    pool_.pass(routing.ids.data(), routing.ids.size(), lookups_);
    for (const Lookup &lookup : lookups_) {
        if (lookup.is_hit || lookup.slot == kNone) continue;
        passed_.push_back(lookup.slot);
        slots_->poison(lookup.slot);
    }
    return lookups_;
}

void DevicePool::publish_passed() {
    for (const int slot : passed_) pool_.publish(slot);
    passed_.clear();
}

void DevicePool::abandon_passed() {
    for (const int slot : passed_) pool_.abandon(slot);
    passed_.clear();
}

// ---- rows ----

bool DevicePool::map_rows(std::string &error) {
    slot_ids_.resize(event_.ids.size());
    std::size_t n_host = 0;
    for (std::size_t row = 0; row < slot_ids_.size(); row++) {
        slot_ids_[row] = slot_of_expert_[static_cast<std::size_t>(event_.ids[row])];
        n_host += slot_ids_[row] == kNone ? 1 : 0;
    }
    n_device_rows_ = slot_ids_.size() - n_host;
    map_host_rows();
    return n_host == 0 || n_device_rows_ == 0 || give_idle_slots(error);
}

void DevicePool::map_host_rows() {
    host_rows_.clear();
    for (const Lookup &lookup : lookups_) {
        if (slot_of_expert_[static_cast<std::size_t>(lookup.expert)] != kNone) continue;
        const std::size_t begin = host_rows_.rows.size();
        for (std::size_t row = 0; row < event_.ids.size(); row++) {
            if (event_.ids[row] == lookup.expert) host_rows_.rows.push_back(static_cast<std::int32_t>(row));
        }
        host_rows_.experts.push_back({lookup.expert, begin, host_rows_.rows.size() - begin});
    }
    kept_first(host_rows_, slabs_);
}

// The shape of a call is kept, so the device computes something for every row. What it computes for a row of the host is never used, but
// kernels expect a token's experts to differ.
bool DevicePool::give_idle_slots(std::string &error) {
    std::vector<Use> uses(used_by_.size(), Use::nobody);
    for (const std::int32_t slot : slot_ids_) {
        if (slot != kNone) uses[static_cast<std::size_t>(slot)] = Use::other_tokens;
    }
    for (auto begin = slot_ids_.begin(); begin != slot_ids_.end(); begin += static_cast<std::ptrdiff_t>(event_.n_used)) {
        const auto end = begin + static_cast<std::ptrdiff_t>(event_.n_used);
        used_by_ = uses;
        std::for_each(begin, end, [&](std::int32_t slot) {
            if (slot != kNone) used_by_[static_cast<std::size_t>(slot)] = Use::this_token;
        });
        for (auto slot = begin; slot != end; ++slot) {
            if (*slot != kNone) continue;
            *slot = idle_slot(error);
            if (*slot == kNone) return false;
            used_by_[static_cast<std::size_t>(*slot)] = Use::this_token;
        }
    }
    return true;
}

// A row more for an expert would be harmless, if the kernels of CPUs did not change at eight rows of an expert. A token alone is computed
// row by row, so two of its rows may have one slot: as many as are on their way into a pool that has no slot to spare, which is one. Of several
// tokens what fits the slots leaves enough of them to nobody, once those on their way have arrived.
int DevicePool::idle_slot(std::string &error) {
    int slot = idle_slot(Use::nobody);
    if (slot == kNone && event_.n_tokens < kRowsOfOtherKernels) slot = idle_slot(Use::other_tokens);
    if (slot == kNone && event_.n_tokens == 1) slot = idle_slot(Use::this_token);
    if (slot != kNone) return slot;
    if (!copy_for_later(error)) return kNone;
    settle();
    slot = idle_slot(Use::nobody);
    return slot != kNone ? slot : idle_slot(Use::other_tokens);
}

int DevicePool::idle_slot(Use most) const {
    for (int slot = 0; slot < pool_.n_slots(); slot++) {
        if (used_by_[static_cast<std::size_t>(slot)] <= most && !pool_.is_filling(slot)) return slot;
    }
    return kNone;
}

void DevicePool::count() {
    std::uint64_t hits = 0;
    std::uint64_t rows_hit = 0;
    std::uint64_t evicted = 0;
    for (const Lookup &lookup : lookups_) {
        hits += lookup.is_hit ? 1 : 0;
        evicted += lookup.evicted != kNone ? 1 : 0;
        rows_hit += lookup.is_hit ? static_cast<std::uint64_t>(lookup.n_rows) : 0;
        (*heat_)[static_cast<std::size_t>(lookup.expert)].add(static_cast<std::uint64_t>(lookup.n_rows));
    }
    PhaseCounts &counts = phase_counts();
    counts.events.add(1);
    counts.lookups.add(lookups_.size());
    counts.hits.add(hits);
    counts.misses.add(lookups_.size() - hits);
    counts.rows_hit.add(rows_hit);
    counts.rows_copy.add(n_device_rows_ - rows_hit);
    counts.rows_cpu.add(host_rows_.rows.size());
    counts.bytes_copied.add((copied_.size() + static_cast<std::size_t>(n_admitted_)) * slab_bytes_);
    counts.bytes_saved.add(hits * slab_bytes_);
    counts.ranges_copied.add((copied_.size() + static_cast<std::size_t>(n_admitted_)) * tensors_.size());
    counts.empty_copies.add(hits == lookups_.size() ? 1 : 0);
    counts_.admitted.add(copied_.size() + static_cast<std::size_t>(n_admitted_));
    counts_.evicted.add(evicted);
    counts_.uploads_in_flight.set(on_their_way_.size());
}

}  // namespace slotpool
