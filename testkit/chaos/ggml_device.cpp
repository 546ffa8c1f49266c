// ggml's table of a device: a GPU with memory of its own, that computes what the CPU computes.
#include <algorithm>

#include "memory.h"
#include "ops.h"

namespace chaos {
namespace {

Device &device_of(abi::Device *dev) { return *static_cast<Device *>(dev->context); }

const char *get_name(abi::Device *dev) { return device_of(dev).name.c_str(); }
const char *get_description(abi::Device *dev) { return device_of(dev).description.c_str(); }

void get_memory(abi::Device *dev, std::size_t *free_bytes, std::size_t *total_bytes) {
    *free_bytes = device_of(dev).free_bytes(true);
    *total_bytes = static_cast<std::size_t>(device_of(dev).knobs[k_total_bytes]);
}

abi::DeviceType get_type(abi::Device *dev) { return device_of(dev).knobs.is_on(k_integrated) ? abi::DeviceType::igpu : abi::DeviceType::gpu; }

void get_props(abi::Device *dev, abi::DeviceProps *props) {
    props->name = get_name(dev);
    props->description = get_description(dev);
    props->type = get_type(dev);
    props->memory_free = device_of(dev).free_bytes(false);
    props->memory_total = static_cast<std::size_t>(device_of(dev).knobs[k_total_bytes]);
    props->device_id = nullptr;
    props->caps = {};
    props->caps.async = true;
    props->caps.mmap_support = true;
}

abi::Backend *init_backend(abi::Device *dev, const char *) { return make_stream(device_of(dev)); }

abi::BufferType *get_buffer_type(abi::Device *dev) { return &device_of(dev).buffer_type; }

abi::BufferType *get_host_buffer_type(abi::Device *dev) {
    return device_of(dev).knobs.is_on(k_host_memory) ? api().dev_buffer_type(cpu_device()) : nullptr;
}

// asked without addresses: what a tensor lies in must not make the CPU say yes or no
bool supports_op(abi::Device *, const abi::Tensor *op) {
    abi::Tensor node = *op, sources[abi::kMaxSrc];
    node.buffer = nullptr;
    for (int i = 0; i < abi::kMaxSrc; i++) {
        if (op->src[i] == nullptr) continue;
        sources[i] = *op->src[i];
        sources[i].buffer = nullptr;
        sources[i].extra = nullptr;
        node.src[i] = &sources[i];
    }
    return api().dev_supports_op(cpu_device(), &node);
}

// as real devices do: by what the type says, not by where it stands
bool supports_buft(abi::Device *dev, abi::BufferType *type) {
    const abi::BufferType &own = device_of(dev).buffer_type;
    return type->iface.get_name == own.iface.get_name && type->device == own.device && type->context == own.context;
}

bool offload_op(abi::Device *dev, const abi::Tensor *op) { return static_cast<double>(batch_of(op)) >= device_of(dev).knobs[k_offload_batch]; }

}  // namespace

void make_ggml_device(Device &device, abi::Registry *reg) {
    device.ggml = {{get_name, get_description, get_memory, get_type, get_props, init_backend, get_buffer_type, get_host_buffer_type, nullptr,
                    supports_op, supports_buft, offload_op, nullptr, nullptr, nullptr},
                   reg,
                   &device};
}

}  // namespace chaos
