// The store device: its default buffer type is where experts lie, host memory or, when the plan leaves them on disk, addresses
// without memory. It says yes to the loader's question about planned expert tensors, and to nothing else, so experts land here
// without any flag and nothing is ever computed here.
#include <new>

#include "backend/placement.h"
#include "backend/registry.h"
#include "store/store_buffer.h"

namespace slotpool {
namespace {

// ---- backend (stream): a context makes one for every device; the scheduler never gives it a node ----

const char *backend_get_name(abi::Backend *) { return "SLOTPOOL-STORE"; }

void backend_free(abi::Backend *backend) { delete backend; }

abi::Status backend_graph_compute(abi::Backend *, abi::Graph *) {
    set_last_error("Expected no operation on the store device, found one. This is a bug of slotpool: please report it");
    return abi::Status::failed;
}

abi::Guid *store_guid() {
    static abi::Guid guid = {{0x73, 0x6c, 0x6f, 0x74, 0x70, 0x6f, 0x6f, 0x6c, 0x2d, 0x73, 0x74, 0x6f, 0x72, 0x65, 0x2d, 0x31}};
    return &guid;
}

// ---- device ----

const char *get_name(abi::Device *) { return "SLOTPOOL-STORE"; }
const char *get_description(abi::Device *) { return "slotpool: experts in host memory, as the file has them"; }

void get_memory(abi::Device *, std::size_t *free_bytes, std::size_t *total_bytes) { *free_bytes = *total_bytes = 0; }

abi::DeviceType get_type(abi::Device *) { return abi::DeviceType::accel; }

// the model that this thread loads right now leaves its experts on disk
bool is_loading_from_disk() {
    const auto session = sessions::loading();
    return session && session->plan.reads_files();
}

void get_props(abi::Device *dev, abi::DeviceProps *props) {
    props->name = get_name(dev);
    props->description = get_description(dev);
    props->type = get_type(dev);
    props->caps.buffer_from_host_ptr = !is_loading_from_disk();  // with a default buffer type: mapped experts stay mapped, no copy
    props->caps.mmap_support = true;
}

abi::Backend *init_backend(abi::Device *dev, const char *) {
    abi::BackendTable table{};
    table.get_name = backend_get_name;
    table.free = backend_free;
    table.graph_compute = backend_graph_compute;
    return new (std::nothrow) abi::Backend{store_guid(), table, dev, nullptr};
}

// the loader lists buffer types before it asks where a tensor may go, and devices may have come since the plan did
abi::BufferType *get_buffer_type(abi::Device *) {
    if (const auto session = sessions::loading()) keep_experts_off(session->plan);
    return is_loading_from_disk() ? disk_buffer_type() : store_buffer_type();
}

abi::Buffer *buffer_from_host_ptr(abi::Device *, void *base, std::size_t size, std::size_t) {
    return make_store_buffer(registry_api(), store_buffer_type(), static_cast<std::uint8_t *>(base), size, false);
}

bool supports_op(abi::Device *, const abi::Tensor *op) {
    const abi::Tensor *planned = planned_in_question(op);
    return planned != nullptr && is_store_type(planned->buffer->buft);
}

bool supports_buft(abi::Device *, abi::BufferType *type) { return is_store_type(type); }

}  // namespace

abi::Device *store_device(abi::Registry *reg) {
    static abi::Device device = {{get_name, get_description, get_memory, get_type, get_props, init_backend, get_buffer_type, nullptr,
                                  buffer_from_host_ptr, supports_op, supports_buft, nullptr, nullptr, nullptr, nullptr},
                                 reg,
                                 nullptr};
    return &device;
}

}  // namespace slotpool
