// The registries that ggml has of us, and the ggml functions that everything else calls.
#pragma once

#include <string>
#include <vector>

#include "abi/ggml_api.h"
#include "plan/plan.h"

namespace slotpool {

const abi::Api &registry_api();
abi::BufferType *store_buffer_type();  // experts in host memory
abi::BufferType *disk_buffer_type();   // experts on disk: addresses without memory
bool is_store_type(const abi::BufferType *type);
int op_mul_mat_id();
bool is_registered();  // ggml has our registry: this copy of the core, not another
// ggml counts a registry's devices once, when it is registered. So pool devices that a later plan needs get a registry of their own.
void register_missing_devices(const Plan &plan);

void set_last_error(const std::string &error);
std::string last_error();

// The sections of a ggml backend, in ggml's order.
abi::Device *store_device(abi::Registry *reg);
void set_n_threads(abi::Backend *backend, int n_threads);
void set_abort_callback(abi::Backend *backend, abi::AbortCallback callback, void *data);

}  // namespace slotpool
