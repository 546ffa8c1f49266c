// The pool device: takes the real expert matmuls of stored tensors, and computes them from slots on the pooled device.
#include <memory>
#include <new>

#include "backend/pool_backend.h"
#include "backend/registry.h"
#include "dispatch/dispatch.h"

namespace slotpool {
namespace {

// ---- backend (stream) ----

Dispatch *dispatch_of(abi::Backend *backend) { return static_cast<Dispatch *>(backend->context); }

const char *backend_get_name(abi::Backend *) { return "SLOTPOOL"; }

void backend_free(abi::Backend *backend) {
    pool_backends::remove(dispatch_of(backend));
    delete dispatch_of(backend);
    delete backend;
}

// ggml is C: no exception may leave through it
abi::Status backend_graph_compute(abi::Backend *backend, abi::Graph *graph) {
    try {
        return dispatch_of(backend)->compute(graph);
    } catch (const std::bad_alloc &) {
        return abi::Status::alloc_failed;
    }
}

abi::Guid *pool_guid() {
    static abi::Guid guid = {{0x73, 0x6c, 0x6f, 0x74, 0x70, 0x6f, 0x6f, 0x6c, 0x2d, 0x70, 0x6f, 0x6f, 0x6c, 0x2d, 0x30, 0x31}};
    return &guid;
}

// ---- device ----

const char *get_name(abi::Device *) { return "SLOTPOOL-CPU"; }
const char *get_description(abi::Device *) { return "slotpool: expert slots in host memory"; }

void get_memory(abi::Device *, std::size_t *free_bytes, std::size_t *total_bytes) { *free_bytes = *total_bytes = 0; }

abi::DeviceType get_type(abi::Device *) { return abi::DeviceType::accel; }

void get_props(abi::Device *dev, abi::DeviceProps *props) {
    props->name = get_name(dev);
    props->description = get_description(dev);
    props->type = get_type(dev);
    props->caps.mmap_support = true;
}

abi::Backend *init_backend(abi::Device *dev, const char *) {
    try {
        auto dispatch = std::make_unique<Dispatch>(registry_api(), pooled_device(), op_mul_mat_id());
        if (!dispatch->is_ready()) return nullptr;
        if (auto session = sessions::loading()) dispatch->adopt(std::move(session));
        abi::BackendTable table{};
        table.get_name = backend_get_name;
        table.free = backend_free;
        table.graph_compute = backend_graph_compute;
        auto *backend = new abi::Backend{pool_guid(), table, dev, dispatch.get()};
        pool_backends::add(dispatch.release());
        return backend;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

// activations stay where the CPU has them: same buffer type, so nothing is copied and pass 3 of the scheduler may
// move a layer's activation to us
abi::BufferType *get_buffer_type(abi::Device *) { return registry_api().dev_buffer_type(pooled_device()); }

bool supports_op(abi::Device *, const abi::Tensor *op) {
    try {
        return pool_takes(op);
    } catch (const std::bad_alloc &) {
        return false;
    }
}

bool supports_buft(abi::Device *, abi::BufferType *type) { return is_store_type(type) || registry_api().dev_supports_buft(pooled_device(), type); }

}  // namespace

abi::Device *pool_device(abi::Registry *reg) {
    static abi::Device device = {{get_name, get_description, get_memory, get_type, get_props, init_backend, get_buffer_type, nullptr, nullptr,
                                  supports_op, supports_buft, nullptr, nullptr, nullptr, nullptr},
                                 reg,
                                 nullptr};
    return &device;
}

namespace {

bool is_pool_backend(const abi::Backend *backend) { return backend->iface.graph_compute == backend_graph_compute; }

template <class Fn>
Fn pooled_function(const char *name) {
    const abi::Api &api = registry_api();
    return reinterpret_cast<Fn>(api.reg_proc_address(api.dev_reg(pooled_device()), name));
}

}  // namespace

// llama.cpp calls this for every backend of a context once before each ubatch: our mark that one begins
void set_n_threads(abi::Backend *backend, int n_threads) {
    if (!is_pool_backend(backend)) return;
    dispatch_of(backend)->begin_ubatch();
    static const auto set = pooled_function<abi::SetThreadsFn>("ggml_backend_set_n_threads");
    if (set != nullptr) set(dispatch_of(backend)->device_backend(), n_threads);
}

void set_abort_callback(abi::Backend *backend, abi::AbortCallback callback, void *data) {
    if (!is_pool_backend(backend)) return;
    static const auto set = pooled_function<abi::SetAbortCallbackFn>("ggml_backend_set_abort_callback");
    if (set != nullptr) set(dispatch_of(backend)->device_backend(), callback, data);
}

}  // namespace slotpool
