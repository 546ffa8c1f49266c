#include "store/store_buffer.h"

#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "backend/registry.h"
#include "os/memory.h"

namespace slotpool {
namespace {

constexpr std::size_t kAlignment = 64;

StoreBuffer *context_of(const abi::Buffer *buffer) { return static_cast<StoreBuffer *>(buffer->context); }

std::uint8_t *at(abi::Buffer *, const abi::Tensor *tensor, std::size_t offset) { return static_cast<std::uint8_t *>(tensor->data) + offset; }

// ---- buffer ----

void free_buffer(abi::Buffer *buffer) {
    StoreBuffer *context = context_of(buffer);
    if (context->session) context->session->forget(*buffer);
    if (context->owns_memory) os::release_memory(context->base, context->size);
    delete context;
}

void *get_base(abi::Buffer *buffer) { return context_of(buffer)->base; }

// the loader gives a tensor its place: from here on its bytes are known to be its experts'
abi::Status init_tensor(abi::Buffer *buffer, abi::Tensor *tensor) {
    StoreBuffer *context = context_of(buffer);
    if (!context->session || tensor->view_src != nullptr) return abi::Status::success;
    try {
        if (auto stored = context->session->add(*tensor, *buffer)) context->stored[tensor->data] = std::move(stored);
        if (auto bias = context->session->add_bias(*tensor)) context->biases[tensor->data] = std::move(bias);
    } catch (const std::bad_alloc &) {
        return abi::Status::alloc_failed;
    }
    return abi::Status::success;
}

void memset_tensor(abi::Buffer *buffer, abi::Tensor *tensor, std::uint8_t value, std::size_t offset, std::size_t size) {
    std::memset(at(buffer, tensor, offset), value, size);
}

void set_tensor(abi::Buffer *buffer, abi::Tensor *tensor, const void *data, std::size_t offset, std::size_t size) {
    std::memcpy(at(buffer, tensor, offset), data, size);
}

void get_tensor(abi::Buffer *, const abi::Tensor *tensor, void *data, std::size_t offset, std::size_t size) {
    std::memcpy(data, static_cast<const std::uint8_t *>(tensor->data) + offset, size);
}

void clear(abi::Buffer *buffer, std::uint8_t value) { std::memset(context_of(buffer)->base, value, context_of(buffer)->size); }

// ---- buffer type ----

const char *type_name(abi::BufferType *) { return "slotpool-store"; }

abi::Buffer *alloc_buffer(abi::BufferType *type, std::size_t size) {
    auto *base = static_cast<std::uint8_t *>(os::reserve_memory(size));
    if (base == nullptr) return nullptr;
    return make_store_buffer(registry_api(), type, base, size, true);
}

std::size_t alignment(abi::BufferType *) { return kAlignment; }

bool is_host(abi::BufferType *) { return true; }

// ---- experts on disk ----

StoredTensor *on_disk(abi::Buffer *buffer, const abi::Tensor *tensor) {
    const auto &stored = context_of(buffer)->stored;
    const auto found = stored.find(tensor->data);
    return found == stored.end() ? nullptr : found->second.get();
}

// The loader reads as many bytes as a tensor has, once, between giving it its place and set_tensor. So a tensor whose experts
// stay on disk has one row in that time. What we know of its shape was copied before.
void shrink(abi::Tensor *tensor) { tensor->ne[1] = tensor->ne[2] = 1; }

void restore(abi::Tensor *tensor, const StoredTensor &stored) {
    tensor->ne[1] = stored.shape.ne[1];
    tensor->ne[2] = stored.shape.ne[2];
}

// an adapter's tensors, and whatever else is no planned expert tensor, need memory; experts need none
abi::Status disk_init_tensor(abi::Buffer *buffer, abi::Tensor *tensor) {
    const abi::Status status = init_tensor(buffer, tensor);
    if (tensor->view_src != nullptr) return status;
    if (on_disk(buffer, tensor) != nullptr) {
        shrink(tensor);
        return status;
    }
    return os::make_usable(tensor->data, registry_api().nbytes(tensor)) ? status : abi::Status::alloc_failed;
}

void disk_memset_tensor(abi::Buffer *buffer, abi::Tensor *tensor, std::uint8_t value, std::size_t offset, std::size_t size) {
    if (on_disk(buffer, tensor) == nullptr) memset_tensor(buffer, tensor, value, offset, size);
}

// What the loader read must be what the plan's file has: a plan may be another model's, a file may be replaced while it loads.
std::string difference(const StoredTensor &stored, const void *data, std::size_t offset, std::size_t size) {
    std::string error;
    const std::unique_ptr<std::uint8_t[]> ours(new std::uint8_t[size]);
    if (!stored.session->files->read(stored, ours.get(), offset, size, error)) return error;
    if (std::memcmp(ours.get(), data, size) == 0) return {};
    return "Expected the experts of the model that was loaded, found others in the file of the plan - at " + stored.planned->name +
           ". Load the model again, or make the plan again";
}

void disk_set_tensor(abi::Buffer *buffer, abi::Tensor *tensor, const void *data, std::size_t offset, std::size_t size) {
    const StoredTensor *stored = on_disk(buffer, tensor);
    if (stored == nullptr) return set_tensor(buffer, tensor, data, offset, size);
    restore(tensor, *stored);
    try {
        stored->session->set_distrust(difference(*stored, data, offset, size));
    } catch (const std::bad_alloc &) {
        stored->session->set_distrust("no memory to compare");  // short enough to need none
    }
}

// a copy of a whole expert tensor: nothing of ours asks for it, but whoever does gets the right bytes
void disk_get_tensor(abi::Buffer *buffer, const abi::Tensor *tensor, void *data, std::size_t offset, std::size_t size) {
    const StoredTensor *stored = on_disk(buffer, tensor);
    if (stored == nullptr) return get_tensor(buffer, tensor, data, offset, size);
    std::string error;
    if (stored->session->files->read(*stored, data, offset, size, error)) return;
    stored->session->fail(error);
    std::memset(data, 0xFF, size);  // NaN rather than a wrong weight: ggml gives us no other way to say no
}

void disk_clear(abi::Buffer *, std::uint8_t) {}  // there is no memory to clear

abi::Buffer *disk_alloc_buffer(abi::BufferType *type, std::size_t size) {
    auto *base = static_cast<std::uint8_t *>(os::reserve_addresses(size));
    if (base == nullptr) return nullptr;
    return make_store_buffer(registry_api(), type, base, size, true);
}

const char *disk_type_name(abi::BufferType *) { return "slotpool-disk"; }

bool is_not_host(abi::BufferType *) { return false; }

}  // namespace

StoredTensor *stored_tensor(const abi::Tensor *weight) {
    if (weight == nullptr || weight->buffer == nullptr || !is_store_type(weight->buffer->buft) || weight->buffer->context == nullptr) return nullptr;
    if (weight->view_src != nullptr) return nullptr;
    const auto &stored = context_of(weight->buffer)->stored;
    const auto found = stored.find(weight->data);
    return found == stored.end() ? nullptr : found->second.get();
}

const StoredBias *stored_bias(const abi::Tensor *bias) {
    if (bias == nullptr || bias->buffer == nullptr || !is_store_type(bias->buffer->buft) || bias->buffer->context == nullptr) return nullptr;
    if (bias->view_src != nullptr) return nullptr;
    const auto &biases = context_of(bias->buffer)->biases;
    const auto found = biases.find(bias->data);
    return found == biases.end() ? nullptr : found->second.get();
}

abi::BufferTypeTable store_buffer_type_table() { return {type_name, alloc_buffer, alignment, nullptr, nullptr, is_host}; }

abi::BufferTypeTable disk_buffer_type_table() { return {disk_type_name, disk_alloc_buffer, alignment, nullptr, nullptr, is_not_host}; }

abi::Buffer *make_store_buffer(const abi::Api &api, abi::BufferType *type, std::uint8_t *base, std::size_t size, bool owns_memory) {
    auto *context = new (std::nothrow) StoreBuffer{sessions::loading(), base, size, owns_memory, {}, {}};
    if (context == nullptr) return nullptr;
    abi::BufferTable table{};
    table.free_buffer = free_buffer;
    table.get_base = get_base;
    table.init_tensor = init_tensor;
    table.memset_tensor = memset_tensor;
    table.set_tensor = set_tensor;
    table.get_tensor = get_tensor;
    table.clear = clear;
    if (type == disk_buffer_type()) {
        table.init_tensor = disk_init_tensor;
        table.memset_tensor = disk_memset_tensor;
        table.set_tensor = disk_set_tensor;
        table.get_tensor = disk_get_tensor;
        table.clear = disk_clear;
    }
    return api.buffer_init(type, table, context, size);
}

}  // namespace slotpool
