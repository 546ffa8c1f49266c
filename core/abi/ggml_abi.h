// The part of ggml's backend interface that slotpool uses, declared from the interface's facts (backend API 2).
//
// ggml does not install its backend interface header, so this one states layouts only; nothing here is trusted until
// abi::verify() has compared it with the running ggml (core/abi/verify.cpp). Field order is part of the interface.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slotpool::abi {

constexpr int kApiVersion = 2;
constexpr int kMaxDims = 4;
constexpr int kMaxSrc = 10;
constexpr int kOpParamsBytes = 64;
constexpr int kNameBytes = 64;
constexpr std::size_t kObjectBytes = 32;  // ggml's allocation header before each tensor of a context

struct Context;  // ggml_context
struct Graph;    // ggml_cgraph: only touched through public functions
struct Buffer;
struct BufferType;
struct Device;
struct Registry;
struct Backend;

enum class Status : int { alloc_failed = -2, failed = -1, success = 0, aborted = 1 };
enum class DeviceType : int { cpu = 0, gpu = 1, igpu = 2, accel = 3, meta = 4 };

constexpr std::int32_t kFlagCompute = 16;  // ggml computes only nodes that carry it
constexpr int kTypeF32 = 0;
constexpr int kTypeI32 = 26;
constexpr int kUsageWeights = 1;

struct Tensor {
    int type;
    Buffer *buffer;
    std::int64_t ne[kMaxDims];
    std::size_t nb[kMaxDims];
    int op;
    std::int32_t op_params[kOpParamsBytes / sizeof(std::int32_t)];
    std::int32_t flags;
    Tensor *src[kMaxSrc];
    Tensor *view_src;
    std::size_t view_offs;
    void *data;
    char name[kNameBytes];
    void *extra;
    char padding[8];
};

struct InitParams {
    std::size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};

struct BufferTypeTable {
    const char *(*get_name)(BufferType *);
    Buffer *(*alloc_buffer)(BufferType *, std::size_t);
    std::size_t (*get_alignment)(BufferType *);
    std::size_t (*get_max_size)(BufferType *);
    std::size_t (*get_alloc_size)(BufferType *, const Tensor *);
    bool (*is_host)(BufferType *);
};

struct BufferType {
    BufferTypeTable iface;
    Device *device;
    void *context;
};

struct BufferTable {
    void (*free_buffer)(Buffer *);
    void *(*get_base)(Buffer *);
    Status (*init_tensor)(Buffer *, Tensor *);
    void (*memset_tensor)(Buffer *, Tensor *, std::uint8_t, std::size_t, std::size_t);
    void (*set_tensor)(Buffer *, Tensor *, const void *, std::size_t, std::size_t);
    void (*get_tensor)(Buffer *, const Tensor *, void *, std::size_t, std::size_t);
    void (*set_tensor_2d)(Buffer *, Tensor *, const void *, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t);
    void (*get_tensor_2d)(Buffer *, const Tensor *, void *, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t);
    bool (*cpy_tensor)(Buffer *, const Tensor *, Tensor *);
    void (*clear)(Buffer *, std::uint8_t);
    void (*reset)(Buffer *);
};

struct Buffer {
    BufferTable iface;
    BufferType *buft;
    void *context;
    std::size_t size;
    int usage;
};

struct BackendTable {
    const char *(*get_name)(Backend *);
    void (*free)(Backend *);
    void (*set_tensor_async)(Backend *, Tensor *, const void *, std::size_t, std::size_t);
    void (*get_tensor_async)(Backend *, const Tensor *, void *, std::size_t, std::size_t);
    void (*set_tensor_2d_async)(Backend *, Tensor *, const void *, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t);
    void (*get_tensor_2d_async)(Backend *, const Tensor *, void *, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t);
    bool (*cpy_tensor_async)(Backend *, Backend *, const Tensor *, Tensor *);
    void (*synchronize)(Backend *);
    void *(*graph_plan_create)(Backend *, const Graph *);
    void (*graph_plan_free)(Backend *, void *);
    void (*graph_plan_update)(Backend *, void *, const Graph *);
    Status (*graph_plan_compute)(Backend *, void *);
    Status (*graph_compute)(Backend *, Graph *);
    void (*event_record)(Backend *, void *);
    void (*event_wait)(Backend *, void *);
    void (*graph_optimize)(Backend *, Graph *, void *);
};

struct Guid {
    std::uint8_t bytes[16];
};

struct Backend {
    Guid *guid;
    BackendTable iface;
    Device *device;
    void *context;
};

struct DeviceCaps {
    bool async;
    bool host_buffer;
    bool buffer_from_host_ptr;
    bool events;
    bool mmap_support;
};

struct DeviceProps {
    const char *name;
    const char *description;
    std::size_t memory_free;
    std::size_t memory_total;
    DeviceType type;
    const char *device_id;
    DeviceCaps caps;
};

struct DeviceTable {
    const char *(*get_name)(Device *);
    const char *(*get_description)(Device *);
    void (*get_memory)(Device *, std::size_t *free, std::size_t *total);
    DeviceType (*get_type)(Device *);
    void (*get_props)(Device *, DeviceProps *);
    Backend *(*init_backend)(Device *, const char *);
    BufferType *(*get_buffer_type)(Device *);
    BufferType *(*get_host_buffer_type)(Device *);
    Buffer *(*buffer_from_host_ptr)(Device *, void *, std::size_t, std::size_t);
    bool (*supports_op)(Device *, const Tensor *);
    bool (*supports_buft)(Device *, BufferType *);
    bool (*offload_op)(Device *, const Tensor *);
    void *(*event_new)(Device *);
    void (*event_free)(Device *, void *);
    void (*event_synchronize)(Device *, void *);
};

struct Device {
    DeviceTable iface;
    Registry *reg;
    void *context;
};

struct RegistryTable {
    const char *(*get_name)(Registry *);
    std::size_t (*get_device_count)(Registry *);
    Device *(*get_device)(Registry *, std::size_t);
    void *(*get_proc_address)(Registry *, const char *);
};

struct Registry {
    int api_version;
    RegistryTable iface;
    void *context;
};

using AbortCallback = bool (*)(void *);
using SetThreadsFn = void (*)(Backend *, int);
using SetAbortCallbackFn = void (*)(Backend *, AbortCallback, void *);

}  // namespace slotpool::abi
