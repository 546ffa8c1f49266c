#include "backend/pool_device.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "backend/pool_stream.h"
#include "backend/registry.h"
#include "store/store_buffer.h"

namespace slotpool {
namespace {

// ---- device ----

PoolDevice *of(abi::Device *device) { return static_cast<PoolDevice *>(device->context); }

const char *get_name(abi::Device *device) { return of(device)->name(); }
const char *get_description(abi::Device *device) { return of(device)->description(); }

void get_memory(abi::Device *, std::size_t *free_bytes, std::size_t *total_bytes) { *free_bytes = *total_bytes = 0; }

abi::DeviceType get_type(abi::Device *) { return abi::DeviceType::accel; }

void get_props(abi::Device *device, abi::DeviceProps *props) {
    props->name = get_name(device);
    props->description = get_description(device);
    props->type = get_type(device);
    props->caps.mmap_support = true;
}

abi::Backend *init_backend(abi::Device *device, const char *) {
    try {
        return make_pool_stream(*of(device));
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

abi::BufferType *get_buffer_type(abi::Device *device) { return of(device)->buffer_type(); }

bool supports_op(abi::Device *device, const abi::Tensor *op) {
    try {
        return of(device)->takes(op);
    } catch (const std::bad_alloc &) {
        return false;
    }
}

bool supports_buft(abi::Device *device, abi::BufferType *type) {
    abi::Device *pooled = of(device)->pooled();
    // of a device that ggml does not know nothing is ever asked, but a scheduler insists that a backend can use its own buffer type
    if (pooled == nullptr) return type == of(device)->buffer_type();
    return is_store_type(type) || registry_api().dev_supports_buft(pooled, type);
}

abi::DeviceTable device_table() {
    return {get_name, get_description, get_memory,    get_type, get_props, init_backend, get_buffer_type, nullptr,
            nullptr,  supports_op,     supports_buft, nullptr,  nullptr,   nullptr,      nullptr};
}

struct Devices {
    std::mutex mutex;
    std::vector<PoolDevice *> all;
};

// never destroyed: a program may free its contexts after our statics would be gone
Devices &devices() {
    static Devices *const the_devices = new Devices;
    return *the_devices;
}

PoolDevice *find(const std::string &name) {
    const auto &all = devices().all;
    const auto found = std::find_if(all.begin(), all.end(), [&](const PoolDevice *one) { return one->pooled_name() == name; });
    return found == all.end() ? nullptr : *found;
}

}  // namespace

PoolDevice::PoolDevice(const std::string &pooled_name, abi::Registry *reg)
    : pooled_name_(pooled_name),
      name_("SLOTPOOL-" + pooled_name),
      description_("slotpool: expert slots on " + pooled_name),
      table_{device_table(), reg, this} {}

bool PoolDevice::is_there(const std::string &name) {
    const std::lock_guard<std::mutex> lock(devices().mutex);
    return find(name) != nullptr;
}

void PoolDevice::forget_all() {
    const std::lock_guard<std::mutex> lock(devices().mutex);
    devices().all.clear();
}

PoolDevice &PoolDevice::over(const std::string &name, abi::Registry *reg) {
    const std::lock_guard<std::mutex> lock(devices().mutex);
    if (PoolDevice *found = find(name)) return *found;
    devices().all.push_back(new PoolDevice(name, reg));
    return *devices().all.back();
}

abi::Device *PoolDevice::pooled() {
    if (abi::Device *known = pooled_.load(std::memory_order_acquire)) return known;
    const abi::Api &api = registry_api();
    abi::Device *found = is_cpu() ? api.dev_by_type(abi::DeviceType::cpu) : api.dev_by_name(pooled_name_.c_str());
    pooled_.store(found, std::memory_order_release);
    return found;
}

abi::BufferType *PoolDevice::buffer_type() {
    const abi::Api &api = registry_api();
    abi::Device *device = pooled();
    if (device == nullptr) return api.dev_buffer_type(api.dev_by_type(abi::DeviceType::cpu));
    if (is_cpu()) return api.dev_buffer_type(device);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_type_.exchange(true)) type_ = *api.dev_buffer_type(device);
    return &type_;
}

}  // namespace slotpool
