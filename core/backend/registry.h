// The one registry ggml requires: two devices, and the ggml functions that everything else calls.
#pragma once

#include <string>

#include "abi/ggml_api.h"

namespace slotpool {

const abi::Api &registry_api();
abi::BufferType *store_buffer_type();  // experts in host memory
abi::BufferType *disk_buffer_type();   // experts on disk: addresses without memory
bool is_store_type(const abi::BufferType *type);
// Which operations the pool device takes, decided by shape alone (core/backend/pool_ops.cpp).
bool pool_takes(const abi::Tensor *op);
int op_mul_mat_id();
bool is_registered();  // ggml has our registry: this copy of the core, not another

void set_last_error(const std::string &error);
std::string last_error();

// The sections of a ggml backend, in ggml's order.
abi::Device *pool_device(abi::Registry *reg);
abi::Device *store_device(abi::Registry *reg);
abi::Device *pooled_device();  // the device that computes for the pool: the CPU
void set_n_threads(abi::Backend *backend, int n_threads);
void set_abort_callback(abi::Backend *backend, abi::AbortCallback callback, void *data);

}  // namespace slotpool
