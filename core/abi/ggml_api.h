// The public ggml functions slotpool calls, found by name in the one ggml that loaded us. Nothing is linked at build time.
#pragma once

#include <string>
#include <type_traits>

#include "abi/ggml_abi.h"

namespace slotpool::abi {

// name in this struct, name of the exported symbol, signature
#define SLOTPOOL_GGML_FUNCTIONS(F)                                                                                              \
    F(init, ggml_init, Context *(*)(InitParams))                                                                                \
    F(free, ggml_free, void (*)(Context *))                                                                                     \
    F(tensor_overhead, ggml_tensor_overhead, std::size_t (*)())                                                                 \
    F(graph_overhead, ggml_graph_overhead_custom, std::size_t (*)(std::size_t, bool))                                           \
    F(new_graph, ggml_new_graph_custom, Graph *(*)(Context *, std::size_t, bool))                                               \
    F(graph_clear, ggml_graph_clear, void (*)(Graph *))                                                                         \
    F(graph_add_node, ggml_graph_add_node, void (*)(Graph *, Tensor *))                                                         \
    F(graph_n_nodes, ggml_graph_n_nodes, int (*)(Graph *))                                                                      \
    F(graph_node, ggml_graph_node, Tensor *(*)(Graph *, int))                                                                   \
    F(new_tensor_4d, ggml_new_tensor_4d, Tensor *(*)(Context *, int, std::int64_t, std::int64_t, std::int64_t, std::int64_t))   \
    F(view_1d, ggml_view_1d, Tensor *(*)(Context *, Tensor *, std::int64_t, std::size_t))                                       \
    F(set_name, ggml_set_name, Tensor *(*)(Tensor *, const char *))                                                             \
    F(set_input, ggml_set_input, void (*)(Tensor *))                                                                            \
    F(mul_mat_id, ggml_mul_mat_id, Tensor *(*)(Context *, Tensor *, Tensor *, Tensor *))                                        \
    F(cpy, ggml_cpy, Tensor *(*)(Context *, Tensor *, Tensor *))                                                                \
    F(mul_mat, ggml_mul_mat, Tensor *(*)(Context *, Tensor *, Tensor *))                                                        \
    F(scale, ggml_scale, Tensor *(*)(Context *, Tensor *, float))                                                               \
    F(op_name, ggml_op_name, const char *(*)(int))                                                                              \
    F(type_name, ggml_type_name, const char *(*)(int))                                                                          \
    F(row_size, ggml_row_size, std::size_t (*)(int, std::int64_t))                                                              \
    F(blck_size, ggml_blck_size, std::int64_t (*)(int))                                                                         \
    F(nbytes, ggml_nbytes, std::size_t (*)(const Tensor *))                                                                     \
    F(buffer_init, ggml_backend_buffer_init, Buffer *(*)(BufferType *, BufferTable, void *, std::size_t))                       \
    F(buffer_free, ggml_backend_buffer_free, void (*)(Buffer *))                                                                \
    F(buffer_base, ggml_backend_buffer_get_base, void *(*)(Buffer *))                                                           \
    F(buffer_size, ggml_backend_buffer_get_size, std::size_t (*)(Buffer *))                                                     \
    F(buffer_type, ggml_backend_buffer_get_type, BufferType *(*)(Buffer *))                                                     \
    F(buffer_usage, ggml_backend_buffer_get_usage, int (*)(Buffer *))                                                           \
    F(buffer_clear, ggml_backend_buffer_clear, void (*)(Buffer *, std::uint8_t))                                                \
    F(tensor_set, ggml_backend_tensor_set, void (*)(Tensor *, const void *, std::size_t, std::size_t))                          \
    F(tensor_get, ggml_backend_tensor_get, void (*)(const Tensor *, void *, std::size_t, std::size_t))                          \
    F(buffer_set_usage, ggml_backend_buffer_set_usage, void (*)(Buffer *, int))                                                 \
    F(tensor_alloc, ggml_backend_tensor_alloc, Status (*)(Buffer *, Tensor *, void *))                                          \
    F(buft_name, ggml_backend_buft_name, const char *(*)(BufferType *))                                                         \
    F(buft_alloc, ggml_backend_buft_alloc_buffer, Buffer *(*)(BufferType *, std::size_t))                                       \
    F(buft_alignment, ggml_backend_buft_get_alignment, std::size_t (*)(BufferType *))                                           \
    F(buft_is_host, ggml_backend_buft_is_host, bool (*)(BufferType *))                                                          \
    F(buft_device, ggml_backend_buft_get_device, Device *(*)(BufferType *))                                                     \
    F(backend_name, ggml_backend_name, const char *(*)(Backend *))                                                              \
    F(backend_free, ggml_backend_free, void (*)(Backend *))                                                                     \
    F(backend_device, ggml_backend_get_device, Device *(*)(Backend *))                                                          \
    F(graph_compute, ggml_backend_graph_compute, Status (*)(Backend *, Graph *))                                                \
    F(graph_compute_async, ggml_backend_graph_compute_async, Status (*)(Backend *, Graph *))                                    \
    F(build_forward_expand, ggml_build_forward_expand, void (*)(Graph *, Tensor *))                                             \
    F(tensor_memset, ggml_backend_tensor_memset, void (*)(Tensor *, std::uint8_t, std::size_t, std::size_t))                    \
    F(buft_alloc_size, ggml_backend_buft_get_alloc_size, std::size_t (*)(BufferType *, const Tensor *))                         \
    F(buft_max_size, ggml_backend_buft_get_max_size, std::size_t (*)(BufferType *))                                             \
    F(synchronize, ggml_backend_synchronize, void (*)(Backend *))                                                               \
    F(dev_name, ggml_backend_dev_name, const char *(*)(Device *))                                                               \
    F(dev_description, ggml_backend_dev_description, const char *(*)(Device *))                                                 \
    F(dev_memory, ggml_backend_dev_memory, void (*)(Device *, std::size_t *, std::size_t *))                                    \
    F(dev_type, ggml_backend_dev_type, DeviceType (*)(Device *))                                                                \
    F(dev_props, ggml_backend_dev_get_props, void (*)(Device *, DeviceProps *))                                                 \
    F(dev_reg, ggml_backend_dev_backend_reg, Registry *(*)(Device *))                                                           \
    F(dev_init, ggml_backend_dev_init, Backend *(*)(Device *, const char *))                                                    \
    F(dev_buffer_type, ggml_backend_dev_buffer_type, BufferType *(*)(Device *))                                                 \
    F(dev_host_buffer_type, ggml_backend_dev_host_buffer_type, BufferType *(*)(Device *))                                       \
    F(dev_buffer_from_host_ptr, ggml_backend_dev_buffer_from_host_ptr, Buffer *(*)(Device *, void *, std::size_t, std::size_t)) \
    F(dev_supports_op, ggml_backend_dev_supports_op, bool (*)(Device *, const Tensor *))                                        \
    F(dev_offload_op, ggml_backend_dev_offload_op, bool (*)(Device *, const Tensor *))                                          \
    F(dev_supports_buft, ggml_backend_dev_supports_buft, bool (*)(Device *, BufferType *))                                      \
    F(reg_name, ggml_backend_reg_name, const char *(*)(Registry *))                                                             \
    F(reg_dev_count, ggml_backend_reg_dev_count, std::size_t (*)(Registry *))                                                   \
    F(reg_dev_get, ggml_backend_reg_dev_get, Device *(*)(Registry *, std::size_t))                                              \
    F(reg_proc_address, ggml_backend_reg_get_proc_address, void *(*)(Registry *, const char *))                                 \
    F(reg_count, ggml_backend_reg_count, std::size_t (*)())                                                                     \
    F(dev_by_name, ggml_backend_dev_by_name, Device *(*)(const char *))                                                         \
    F(register_registry, ggml_backend_register, void (*)(Registry *))                                                           \
    F(reg_get, ggml_backend_reg_get, Registry *(*)(std::size_t))                                                                \
    F(dev_count, ggml_backend_dev_count, std::size_t (*)())                                                                     \
    F(dev_by_type, ggml_backend_dev_by_type, Device *(*)(DeviceType))

// One table of function pointers; every pointer is set, or load() failed.
struct Api {
#define SLOTPOOL_DECLARE(member, symbol, signature) std::add_pointer_t<std::remove_pointer_t<signature>> member = nullptr;
    SLOTPOOL_GGML_FUNCTIONS(SLOTPOOL_DECLARE)
#undef SLOTPOOL_DECLARE
};

// Fills `api` from the library behind `handle` (a dlopen handle) and what it depends on. On failure `error` names the
// first symbol that is missing.
bool load(void *handle, Api &api, std::string &error);

// Compares what ggml_abi.h declares with the running ggml: API number, tensor fields, device, buffer and backend tables.
// On mismatch returns false and one line that says what was expected and what was found. Never crashes on a foreign
// layout that differs by order or offset: every pointer is compared as a value before it is followed.
bool verify(const Api &api, std::string &error);

}  // namespace slotpool::abi
