#include "store/session_page.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>

#include "store/file_store.h"

namespace slotpool {
namespace {

std::size_t whole_granules(std::size_t bytes) {
    const std::size_t granule = os::SharedPage::granule();
    return (std::max<std::size_t>(bytes, 1) + granule - 1) / granule * granule;
}

std::uint64_t now_ns() {
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count());
}

}  // namespace

SessionPage::SessionPage(const Plan &plan, int session) : plan_(plan) {
    collect_devices();
    own_devices_ = std::make_unique<DeviceMemory[]>(device_names_.size());
    for (std::size_t i = 0; i < device_names_.size(); i++) devices_.push_back(&own_devices_[i]);
    sizes_ = {plan.groups.size(), plan.tensors.size() + plan.off.size(), device_names_.size()};
    try {
        open(session);
    } catch (const std::exception &unexpected) {
        turn_off(unexpected.what());
    }
    for (DeviceMemory *device : devices_) {
        device->budget.set(DeviceMemory::kUnknown);
        device->free.set(DeviceMemory::kUnknown);
    }
}

void SessionPage::collect_devices() {
    for (const PlannedGroup &group : plan_.groups) {
        if (find_device(group.device) < 0) device_names_.push_back(group.device);  // auto: until the layer is found
    }
    for (const PlannedDevice &device : plan_.devices) {
        if (find_device(device.name) < 0) device_names_.push_back(device.name);
    }
    if (plan_.reads_files() && find_device("CPU") < 0) device_names_.emplace_back("CPU");  // the RAM between a disk and the devices
    if (device_names_.empty()) device_names_.emplace_back("CPU");                          // a plan of reasons alone; there is always a first device
}

int SessionPage::find_device(const std::string &name) const {
    const auto found = std::find(device_names_.begin(), device_names_.end(), name);
    return found == device_names_.end() ? -1 : static_cast<int>(found - device_names_.begin());
}

void SessionPage::open(int session) {
    std::string error;
    const std::size_t bytes = whole_granules(sizes_.bytes());
    file_ = os::SharedPage::create(std::to_string(os::this_process().pid) + "-" + std::to_string(session), error);
    void *memory = file_ ? file_->extend(bytes, error) : nullptr;
    if (memory == nullptr) return turn_off(error);
    page_ = std::make_unique<StatsPage>(memory, sizes_, bytes, whole_granules(sizes_.context_bytes()));
    describe(session);
    describe_tensors();
    for (std::size_t i = 0; i < devices_.size(); i++) devices_[i] = &page_->device(i).memory;
}

void SessionPage::describe(int session) {
    PageHeader &header = page_->header();
    const os::ProcessName process = os::this_process();
    header.session = static_cast<std::uint32_t>(session);
    header.pid = process.pid;
    header.process_started = process.started;
    header.started_ns = now_ns();
    header.is_on_disk = plan_.reads_files() ? 1 : 0;
    put_text(process.program, header.program);
    put_text(plan_.files.empty() ? "" : plan_.files[0].path, header.model, true);
    for (std::size_t i = 0; i < device_names_.size(); i++) put_text(device_names_[i], page_->device(i).name);
    for (std::size_t i = 0; i < plan_.groups.size(); i++) {
        const PlannedGroup &planned = plan_.groups[i];
        PageGroup &group = page_->group(i);
        group.layer = planned.layer;
        group.n_expert = planned.n_expert;
        group.planned_slots = group.slots = planned.slots;
        group.device = find_device(planned.device);
        put_text(planned.pass, group.pass);
        for (int tensor : planned.tensors) group.slab_bytes += plan_.tensors[static_cast<std::size_t>(tensor)].slab_bytes;
    }
}

void SessionPage::describe_tensors() {
    for (std::size_t i = 0; i < plan_.tensors.size(); i++) {
        PageTensor &tensor = page_->tensor(i);
        tensor.group = plan_.tensors[i].group;
        tensor.slab_bytes = plan_.tensors[i].slab_bytes;
        put_text(plan_.tensors[i].role, tensor.role);
        put_text(plan_.tensors[i].name, tensor.name);
    }
    for (std::size_t i = 0; i < plan_.off.size(); i++) {
        PageTensor &tensor = page_->tensor(plan_.tensors.size() + i);
        tensor.group = -1;
        put_text(plan_.off[i].name, tensor.name);
        put_text(plan_.off[i].reason, tensor.off_reason);
    }
}

void SessionPage::publish() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (page_) page_->publish();
}

void SessionPage::hide() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (file_) file_->remove();
}

std::string SessionPage::why_off() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return why_off_;
}

// A page that lacks a context would show wrong sums: rather none. What is counted on it already stays there.
void SessionPage::turn_off(const std::string &reason) {
    why_off_ = "expected a page that other processes can read, found none: " + reason;
    if (file_) file_->remove();
}

std::unique_ptr<ContextCounts> SessionPage::add_context() {
    const std::lock_guard<std::mutex> lock(mutex_);
    GroupCounts *on_page = page_ && why_off_.empty() ? context_on_page() : nullptr;
    if (on_page == nullptr) return std::make_unique<ContextCounts>(sizes_.n_groups);
    auto context = std::make_unique<ContextCounts>(on_page, sizes_.n_groups);
    page_->add_context();
    return context;
}

GroupCounts *SessionPage::context_on_page() {
    std::string error;
    void *memory = file_->extend(whole_granules(sizes_.context_bytes()), error);
    if (memory == nullptr) {
        turn_off(error);
        return nullptr;
    }
    auto *first = static_cast<GroupCounts *>(memory);
    for (std::size_t group = 0; group < sizes_.n_groups; group++) new (first + group) GroupCounts();
    return first;
}

void SessionPage::count_reset() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (page_) page_->count_reset();
}

void SessionPage::set_device(int index, std::uint64_t budget, std::uint64_t free) {
    device(index).budget.set(budget);
    device(index).free.set(free);
}

void SessionPage::set_slots(const std::vector<int> &slots) {
    change([&] {
        for (std::size_t i = 0; i < slots.size(); i++) {
            PageGroup &group = page_->group(i);
            group.slots = slots[i] >= 0 ? slots[i] : group.planned_slots;
        }
    });
}

void SessionPage::set_group_device(int group, const std::string &name) {
    const int index = find_device(name);
    if (index >= 0) change([&] { page_->group(static_cast<std::size_t>(group)).device = index; });
}

void SessionPage::set_off_reason(int group, const std::string &reason) {
    change([&] { put_text(reason, page_->group(static_cast<std::size_t>(group)).off_reason); });
}

void SessionPage::set_repacked(const PlannedTensor &tensor) {
    change([&] { page_->tensor(static_cast<std::size_t>(&tensor - plan_.tensors.data())).is_repacked = 1; });
}

void SessionPage::set_stored(const PlannedTensor &tensor, bool is_stored) {
    change([&] { page_->tensor(static_cast<std::size_t>(&tensor - plan_.tensors.data())).is_stored = is_stored ? 1 : 0; });
}

void SessionPage::watch(const FileStore &files) {
    const auto look = [this, &files] {
        const std::string reason = files.why_buffered();
        change([&] { put_text(reason, page_->header().why_buffered); });
    };
    files.when_buffered(look);
    look();
}

}  // namespace slotpool
