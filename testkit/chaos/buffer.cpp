// The buffer type of a device and its buffers. Calls on buffers act at once and wait for no stream.
#include <cstring>
#include <new>

#include "hazards.h"
#include "memory.h"
#include "transfer.h"

namespace chaos {
namespace {

// ---- buffer ----

Memory &memory_in(abi::Buffer *buffer) { return **static_cast<std::shared_ptr<Memory> *>(buffer->context); }

void free_buffer(abi::Buffer *buffer) {
    auto *memory = static_cast<std::shared_ptr<Memory> *>(buffer->context);
    Device &device = (*memory)->device();
    check_blocking({nullptr, &device, "free of a buffer of " + device.name, {}, Ranges((*memory)->all()), {}, {}});
    if (device.knobs.is_on(k_poison)) (*memory)->fill(kPoison);  // queued work still holds it, and shall see this
    device.give_back((*memory)->bytes());
    delete memory;
}

void *get_base(abi::Buffer *buffer) { return memory_in(buffer).base(); }

abi::Status init_tensor(abi::Buffer *buffer, abi::Tensor *tensor) {
    if (memory_in(buffer).holds(tensor->data, api().nbytes(tensor))) return abi::Status::success;
    set_error(&memory_in(buffer).device(), std::string("Expected a tensor inside its buffer, found outside: ") + tensor->name);
    return abi::Status::failed;
}

void memset_tensor(abi::Buffer *buffer, abi::Tensor *tensor, std::uint8_t value, std::size_t offset, std::size_t bytes) {
    Memory &memory = memory_in(buffer);
    std::uint8_t *at = memory.at(tensor->data) + offset;
    check_blocking({nullptr, &memory.device(), std::string("memset of ") + tensor->name, {}, Ranges(Range::of(at, bytes)), {}, {}});
    std::memset(at, value, bytes);
}

void set_tensor(abi::Buffer *, abi::Tensor *tensor, const void *data, std::size_t offset, std::size_t bytes) {
    Transfer transfer(tensor, offset, bytes, const_cast<void *>(data), Transfer::to_device);
    check_blocking(transfer.touch(nullptr));
    transfer.run(true);
}

void get_tensor(abi::Buffer *, const abi::Tensor *tensor, void *data, std::size_t offset, std::size_t bytes) {
    Transfer transfer(tensor, offset, bytes, data, Transfer::to_host);
    check_blocking(transfer.touch(nullptr));
    transfer.run(true);
}

// from this device's own memory alone: ggml brings anything else through the host
bool cpy_tensor(abi::Buffer *buffer, const abi::Tensor *src, abi::Tensor *dst) {
    Memory &to = memory_in(buffer);
    const std::shared_ptr<Memory> from = memory_of(src);
    if (!from || &from->device() != &to.device()) return false;
    const std::size_t bytes = api().nbytes(src);
    if (bytes == 0) return true;
    check_blocking({nullptr,
                    &to.device(),
                    std::string("copy of ") + src->name,
                    Ranges(Range::of(from->at(src->data), bytes)),
                    Ranges(Range::of(to.at(dst->data), bytes)),
                    {},
                    {}});
    std::memmove(to.at(dst->data), from->at(src->data), bytes);
    to.device().counters.add(c_copies_n);
    to.device().counters.add(c_copies_bytes, bytes);
    return true;
}

void clear(abi::Buffer *buffer, std::uint8_t value) {
    Memory &memory = memory_in(buffer);
    check_blocking({nullptr, &memory.device(), "clear of a buffer of " + memory.device().name, {}, Ranges(memory.all()), {}, {}});
    memory.fill(value);
}

abi::BufferTable buffer_table() {
    abi::BufferTable table{};
    table.free_buffer = free_buffer;
    table.get_base = get_base;
    table.init_tensor = init_tensor;
    table.memset_tensor = memset_tensor;
    table.set_tensor = set_tensor;
    table.get_tensor = get_tensor;
    table.cpy_tensor = cpy_tensor;
    table.clear = clear;
    return table;
}

// ---- buffer type ----

Device &device_of(abi::BufferType *type) { return *static_cast<Device *>(type->context); }

const char *type_name(abi::BufferType *type) { return device_of(type).name.c_str(); }

abi::Buffer *alloc_buffer(abi::BufferType *type, std::size_t bytes) {
    Device &device = device_of(type);
    bytes = bytes == 0 ? 1 : bytes;
    if (!device.take(bytes)) return nullptr;
    auto memory = Memory::make(device, bytes);
    auto *held = memory ? new (std::nothrow) std::shared_ptr<Memory>(memory) : nullptr;
    if (held == nullptr) {
        device.give_back(bytes);
        device.counters.add(c_failed_allocations);
        return nullptr;
    }
    // the type that was asked, which may be a copy of ours
    return api().buffer_init(type, buffer_table(), held, bytes);
}

std::size_t get_alignment(abi::BufferType *) { return 128; }

std::size_t get_max_size(abi::BufferType *type) {
    const double limit = device_of(type).knobs[k_max_buffer_bytes];
    return limit < 0 ? SIZE_MAX : static_cast<std::size_t>(limit);
}

std::size_t get_alloc_size(abi::BufferType *, const abi::Tensor *tensor) { return api().nbytes(tensor); }

bool is_host(abi::BufferType *) { return false; }

}  // namespace

void make_buffer_type(Device &device) {
    device.buffer_type = {{type_name, alloc_buffer, get_alignment, get_max_size, get_alloc_size, is_host}, &device.ggml, &device};
}

std::shared_ptr<Memory> memory_of(const abi::Tensor *tensor) {
    const abi::Buffer *buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
    if (buffer == nullptr || buffer->iface.get_base != get_base) return nullptr;
    return *static_cast<std::shared_ptr<Memory> *>(buffer->context);
}

}  // namespace chaos
