#include "store/session.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

namespace slotpool {

namespace {

std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> serial{0};
    return ++serial;
}

}  // namespace

Session::Session(Plan made, int number)
    : plan(std::move(made)),
      page(plan, number),
      ram_slots_(plan.groups.size(), -1),
      heats_(plan.groups.size()),
      off_reasons_(plan.groups.size()),
      slots_(plan.groups.size(), -1),
      is_read_between_(plan.groups.size(), false),
      misfits_(plan.tensors.size()),
      was_stored_(plan.tensors.size()),
      is_repacked_(plan.tensors.size()) {
    for (const PlannedGroup &group : plan.groups) {
        // without slots it is on no device: nobody takes its matmuls, and its experts are in the store for the CPU
        devices_.push_back(group.slots == 0 ? "none" : group.device == "auto" ? "" : group.device);
        if (group.slots == 0) off_reasons_[devices_.size() - 1] = group.claim == Claim::stated ? "0 slots asked for" : "budget";
    }
}

std::string Session::device_of(int group) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return devices_[static_cast<std::size_t>(group)];
}

void Session::set_device(int group, const std::string &device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    devices_[static_cast<std::size_t>(group)] = device;
    page.set_group_device(group, device);
}

std::shared_ptr<StoredTensor> Session::add(const abi::Tensor &weight, const abi::Buffer &buffer) {
    const PlannedTensor *planned = plan.find(weight.name);
    if (planned == nullptr || weight.data == nullptr) return nullptr;
    if (!fits(weight, *planned)) return nullptr;
    auto stored = std::make_shared<StoredTensor>();
    stored->planned = planned;
    stored->session = this;
    stored->shape = weight;
    stored->base = static_cast<const std::uint8_t *>(weight.data);
    stored->slab_bytes = weight.nb[2];
    stored->buffer = &buffer;
    stored->serial = next_serial();
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto is_same = [&](const auto &tensor) { return tensor->planned == planned; };
    if (std::any_of(tensors_.begin(), tensors_.end(), is_same)) return nullptr;  // a second model under one plan stays stock
    tensors_.push_back(stored);
    was_stored_[index_of(*planned)] = true;
    page.set_stored(*planned, true);
    return stored;
}

bool Session::wants(const abi::Tensor &weight) {
    const PlannedTensor *planned = plan.find(weight.name);
    return planned != nullptr && fits(weight, *planned) && !is_stored(planned->name);
}

bool Session::fits(const abi::Tensor &weight, const PlannedTensor &planned) {
    const PlannedGroup &group = plan.groups[static_cast<std::size_t>(planned.group)];
    if (weight.ne[2] == group.n_expert && weight.nb[2] == planned.slab_bytes && weight.ne[3] == 1) return true;
    const std::lock_guard<std::mutex> lock(mutex_);
    misfits_[index_of(planned)] = "expected " + std::to_string(group.n_expert) + " experts of " + std::to_string(planned.slab_bytes) + " bytes in " +
                                  planned.name + " as planned, found " + std::to_string(weight.ne[2]) + " of " + std::to_string(weight.nb[2]);
    return false;
}

std::size_t Session::index_of(const PlannedTensor &planned) const { return static_cast<std::size_t>(&planned - plan.tensors.data()); }

std::shared_ptr<StoredBias> Session::add_bias(const abi::Tensor &bias) const {
    if (plan.biases.count(bias.name) == 0 || bias.data == nullptr || bias.type != abi::kTypeF32) return nullptr;
    return std::make_shared<StoredBias>(StoredBias{bias, next_serial()});
}

void Session::forget(const abi::Buffer &buffer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::lock_guard<std::shared_mutex> nobody_reads(memory_);
    const auto is_gone = [&](const auto &tensor) { return tensor->buffer == &buffer; };
    for (const auto &tensor : tensors_) {
        if (!is_gone(tensor)) continue;
        tensor->base = nullptr;
        page.set_stored(*tensor->planned, false);
    }
    tensors_.erase(std::remove_if(tensors_.begin(), tensors_.end(), is_gone), tensors_.end());
}

StoredTensors Session::tensors_of(int group) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    StoredTensors found;
    for (const auto &tensor : tensors_) {
        if (tensor->planned->group == group) found.push_back(tensor);
    }
    return found;
}

bool Session::is_stored(const std::string &name) const {
    const PlannedTensor *planned = plan.find(name.c_str());
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(tensors_.begin(), tensors_.end(), [&](const auto &tensor) { return tensor->planned == planned; });
}

bool Session::was_stored(int tensor) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return was_stored_[static_cast<std::size_t>(tensor)];
}

std::shared_ptr<ContextCounts> Session::add_context() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_.empty()) {
        ended_.reserve(contexts_.size() + 1);  // so that the end of a context needs no memory
        contexts_.push_back(page.add_context());
        ended_.push_back(contexts_.back().get());
    }
    ContextCounts *const context = ended_.back();
    ended_.pop_back();
    return {context, [self = shared_from_this()](ContextCounts *ended) { self->end_context(ended); }};
}

void Session::end_context(ContextCounts *context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (GroupCounts &group : context->groups) {
        group.uploads_in_flight.set(0);
        group.pinned.set(0);
    }
    ended_.push_back(context);
}

std::shared_ptr<ContextCounts> Session::add_ram_context() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_ram_.empty()) {
        ended_ram_.reserve(ram_contexts_.size() + 1);
        ram_contexts_.push_back(std::make_unique<ContextCounts>(plan.groups.size()));
        ended_ram_.push_back(ram_contexts_.back().get());
    }
    ContextCounts *const context = ended_ram_.back();
    ended_ram_.pop_back();
    return {context, [self = shared_from_this()](ContextCounts *ended) { self->end_ram_context(ended); }};
}

void Session::end_ram_context(ContextCounts *context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ram_.push_back(context);
}

std::shared_ptr<Heat> Session::add_heat(int group) {
    const auto index = static_cast<std::size_t>(group);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &one : heats_[index]) {
        if (one.use_count() > 1) continue;
        std::atomic_thread_fence(std::memory_order_acquire);  // what its pool has counted is seen before we go on
        return one;
    }
    heats_[index].push_back(std::make_shared<Heat>(static_cast<std::size_t>(plan.groups[index].n_expert)));
    return heats_[index].back();
}

std::vector<std::uint64_t> Session::heat_of(int group) const {
    const auto index = static_cast<std::size_t>(group);
    std::vector<std::uint64_t> sum(static_cast<std::size_t>(plan.groups[index].n_expert), 0);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &one : heats_[index]) {
        for (std::size_t expert = 0; expert < sum.size(); expert++) sum[expert] += (*one)[expert].get();
    }
    return sum;
}

int Session::ram_slots_of(int group) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ram_slots_[static_cast<std::size_t>(group)];
}

void Session::set_ram_slots(int group, int slots) {
    const std::lock_guard<std::mutex> lock(mutex_);
    int &known = ram_slots_[static_cast<std::size_t>(group)];
    known = std::max(known, slots);
}

bool Session::is_first(const std::shared_ptr<const void> &llama_context) const {
    if (!plan.only_first_context || plan.reads_files()) return true;
    const auto first = first_context_.lock();
    return first == nullptr || first == llama_context;
}

bool Session::may_have_pools(const std::shared_ptr<const void> &llama_context) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_first(llama_context);
}

bool Session::claim_pools(const std::shared_ptr<const void> &llama_context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_first(llama_context)) return false;
    first_context_ = llama_context;
    return true;
}

std::string Session::off_reason(int group) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!off_reasons_[static_cast<std::size_t>(group)].empty()) return off_reasons_[static_cast<std::size_t>(group)];
    // another model's tensor of the same name is no reason: the planned one was stored
    for (int tensor : plan.groups[static_cast<std::size_t>(group)].tensors) {
        const auto index = static_cast<std::size_t>(tensor);
        if (!was_stored_[index] && !misfits_[index].empty()) return misfits_[index];
    }
    return {};
}

void Session::switch_off(int group, const std::string &reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    off_reasons_[static_cast<std::size_t>(group)] = reason;
    page.set_off_reason(group, reason);
}

void Session::set_read_between(int group) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_read_between_[static_cast<std::size_t>(group)] = true;
}

bool Session::is_read_between(int group) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_read_between_[static_cast<std::size_t>(group)];
}

int Session::slots_of(int group) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int slots = slots_[static_cast<std::size_t>(group)];
    if (slots >= 0) return slots;
    const PlannedGroup &planned = plan.groups[static_cast<std::size_t>(group)];
    const PlannedDevice *device = plan.find_device(devices_[static_cast<std::size_t>(group)]);
    const bool is_own = planned.claim != Claim::open && device != nullptr && device->slots > 0;  // not the device's number, but one of its own
    return device == nullptr || is_own ? planned.slots : std::min(planned.slots, device->slots);
}

int Session::usable_slots(int group) const { return plan.usable_slots(plan.groups[static_cast<std::size_t>(group)], slots_of(group)); }

bool Session::had_slots(int group) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return slots_[static_cast<std::size_t>(group)] > 0;
}

void Session::set_slots(int group, int slots) {
    const std::lock_guard<std::mutex> lock(mutex_);
    int &known = slots_[static_cast<std::size_t>(group)];
    known = std::max(known, slots);
    page.set_slots(slots_);
}

void Session::set_repacked(const StoredTensor &tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_repacked_[index_of(*tensor.planned)] = true;
    page.set_repacked(*tensor.planned);
}

std::uint64_t Session::repacked_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < is_repacked_.size(); i++) {
        const auto n_expert = static_cast<std::uint64_t>(plan.groups[static_cast<std::size_t>(plan.tensors[i].group)].n_expert);
        if (is_repacked_[i]) bytes += n_expert * plan.tensors[i].slab_bytes;
    }
    return bytes;
}

std::uint64_t Session::reserve() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::max(plan.memory.reserve, reserve_);
}

void Session::add_reserve(std::uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    reserve_ += bytes;
}

std::string Session::distrust() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return distrust_;
}

void Session::set_distrust(const std::string &reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (distrust_.empty()) distrust_ = reason;
}

std::string Session::take_failure() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(failure_, {});
}

void Session::fail(const std::string &failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure;
}

namespace sessions {
namespace {

struct Table {
    std::mutex mutex;
    std::map<int, std::shared_ptr<Session>> open;
    std::shared_ptr<Session> loading;
    std::thread::id loading_thread;  // of no thread: everybody's
    std::atomic<int> next{1};
};

// never destroyed: a program may free its models after our statics would be gone
Table &table() {
    static Table *const the_table = new Table;
    return *the_table;
}

}  // namespace

int open(Plan plan, std::string &error, bool for_every_thread) {
    Table &t = table();
    const int number = t.next++;
    auto session = std::make_shared<Session>(std::move(plan), number);
    if (session->plan.reads_files()) {
        session->files = FileStore::open(session->plan, error);
        if (!session->files) return 0;
        session->page.watch(*session->files);
    }
    session->page.publish();
    const std::lock_guard<std::mutex> lock(t.mutex);
    t.loading = std::move(session);
    t.loading_thread = for_every_thread ? std::thread::id() : std::this_thread::get_id();
    t.open[number] = t.loading;
    return number;
}

void end_loading() {
    const std::lock_guard<std::mutex> lock(table().mutex);
    table().loading.reset();
}

std::shared_ptr<Session> loading() {
    const Table &t = table();
    const std::lock_guard<std::mutex> lock(table().mutex);
    const bool is_ours = t.loading_thread == std::thread::id() || t.loading_thread == std::this_thread::get_id();
    return is_ours ? t.loading : nullptr;
}

std::shared_ptr<Session> get(int number) {
    const std::lock_guard<std::mutex> lock(table().mutex);
    const auto found = table().open.find(number);
    return found == table().open.end() ? nullptr : found->second;
}

void close(int number) {
    const std::lock_guard<std::mutex> lock(table().mutex);
    const auto found = table().open.find(number);
    if (found == table().open.end()) return;
    found->second->page.hide();
    table().open.erase(found);
}

}  // namespace sessions
}  // namespace slotpool
