// What the running ggml cannot be asked, the installed headers can: compiled only. Every number, offset and signature that
// core/abi declares and ggml's public headers state is compared. (The tables of ggml-backend-impl.h are not installed.)
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "abi/ggml_api.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace ours = slotpool::abi;

#define SAME_FIELD(field)                                                                                 \
    static_assert(offsetof(ours::Tensor, field) == offsetof(ggml_tensor, field), "tensor field " #field); \
    static_assert(sizeof(ours::Tensor::field) == sizeof(ggml_tensor::field), "tensor field " #field)

static_assert(sizeof(ours::Tensor) == sizeof(ggml_tensor), "tensor");
SAME_FIELD(type);
SAME_FIELD(buffer);
SAME_FIELD(ne);
SAME_FIELD(nb);
SAME_FIELD(op);
SAME_FIELD(op_params);
SAME_FIELD(flags);
SAME_FIELD(src);
SAME_FIELD(view_src);
SAME_FIELD(view_offs);
SAME_FIELD(data);
SAME_FIELD(name);
SAME_FIELD(extra);

static_assert(sizeof(ours::InitParams) == sizeof(ggml_init_params), "parameters of ggml_init");
static_assert(offsetof(ours::InitParams, mem_size) == offsetof(ggml_init_params, mem_size), "mem_size");
static_assert(offsetof(ours::InitParams, mem_buffer) == offsetof(ggml_init_params, mem_buffer), "mem_buffer");
static_assert(offsetof(ours::InitParams, no_alloc) == offsetof(ggml_init_params, no_alloc), "no_alloc");

#define SAME_PROPERTY(field) static_assert(offsetof(ours::DeviceProps, field) == offsetof(ggml_backend_dev_props, field), "device property " #field)
#define SAME_CAPABILITY(field) static_assert(offsetof(ours::DeviceCaps, field) == offsetof(ggml_backend_dev_caps, field), "capability " #field)

static_assert(sizeof(ours::DeviceProps) == sizeof(ggml_backend_dev_props), "device properties");
SAME_PROPERTY(name);
SAME_PROPERTY(description);
SAME_PROPERTY(memory_free);
SAME_PROPERTY(memory_total);
SAME_PROPERTY(type);
SAME_PROPERTY(device_id);
SAME_PROPERTY(caps);
static_assert(sizeof(ours::DeviceCaps) == sizeof(ggml_backend_dev_caps), "capabilities");
SAME_CAPABILITY(async);
SAME_CAPABILITY(host_buffer);
SAME_CAPABILITY(buffer_from_host_ptr);
SAME_CAPABILITY(events);
SAME_CAPABILITY(mmap_support);

#define SAME_NUMBER(mine, theirs) static_assert(static_cast<int>(mine) == static_cast<int>(theirs), #theirs)

SAME_NUMBER(ours::kTypeF32, GGML_TYPE_F32);
SAME_NUMBER(ours::kTypeI32, GGML_TYPE_I32);
SAME_NUMBER(ours::kFlagCompute, GGML_TENSOR_FLAG_COMPUTE);
SAME_NUMBER(ours::kUsageWeights, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
SAME_NUMBER(ours::kMaxDims, GGML_MAX_DIMS);
SAME_NUMBER(ours::kMaxSrc, GGML_MAX_SRC);
SAME_NUMBER(ours::kNameBytes, GGML_MAX_NAME);
SAME_NUMBER(ours::kOpParamsBytes, GGML_MAX_OP_PARAMS);
SAME_NUMBER(ours::Status::alloc_failed, GGML_STATUS_ALLOC_FAILED);
SAME_NUMBER(ours::Status::failed, GGML_STATUS_FAILED);
SAME_NUMBER(ours::Status::success, GGML_STATUS_SUCCESS);
SAME_NUMBER(ours::Status::aborted, GGML_STATUS_ABORTED);
SAME_NUMBER(ours::DeviceType::cpu, GGML_BACKEND_DEVICE_TYPE_CPU);
SAME_NUMBER(ours::DeviceType::gpu, GGML_BACKEND_DEVICE_TYPE_GPU);
SAME_NUMBER(ours::DeviceType::igpu, GGML_BACKEND_DEVICE_TYPE_IGPU);
SAME_NUMBER(ours::DeviceType::accel, GGML_BACKEND_DEVICE_TYPE_ACCEL);
SAME_NUMBER(ours::DeviceType::meta, GGML_BACKEND_DEVICE_TYPE_META);

// Two types travel the same way: both pointers, or of one size and kind.
template <class A, class B>
constexpr bool same_way() {
    if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
        return std::is_void_v<A> && std::is_void_v<B>;
    } else {
        return std::is_pointer_v<A> == std::is_pointer_v<B> && std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
               std::is_class_v<A> == std::is_class_v<B> && std::is_same_v<A, bool> == std::is_same_v<B, bool> && sizeof(A) == sizeof(B);
    }
}

template <class A, class B>
struct SameCall : std::false_type {};
template <class ResultA, class... A, class ResultB, class... B>
struct SameCall<ResultA (*)(A...), ResultB (*)(B...)> {
    static constexpr bool value = [] {
        if constexpr (sizeof...(A) != sizeof...(B)) {
            return false;
        } else {
            return same_way<ResultA, ResultB>() && (same_way<A, B>() && ...);
        }
    }();
};

static_assert(!SameCall<void (*)(int), void (*)(void *)>::value && !SameCall<void (*)(), void (*)(int)>::value, "it can tell");

// of ggml-backend-impl.h, which is not installed: as the core declares it
extern "C" ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t, ours::BufferTable, void *, size_t);

namespace slotpool::abi {  // where the signatures are at home
#define SAME_CALL(member, symbol, signature) static_assert(SameCall<signature, decltype(&symbol)>::value, #symbol);
SLOTPOOL_GGML_FUNCTIONS(SAME_CALL)
static_assert(SameCall<SetAbortCallbackFn, ggml_backend_set_abort_callback_t>::value, "ggml_backend_set_abort_callback");
static_assert(SameCall<SetThreadsFn, ggml_backend_set_n_threads_t>::value, "ggml_backend_set_n_threads");
}  // namespace slotpool::abi
