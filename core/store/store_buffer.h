// The store's buffer types: host memory that holds experts as the file has them, mapped or allocated by us; or, for experts
// that stay on disk, addresses without memory, which nobody can read but we.
#pragma once

#include <memory>
#include <unordered_map>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

// What hangs on a store buffer: its memory when we own it, and the session whose experts it holds.
struct StoreBuffer {
    std::shared_ptr<Session> session;  // nullptr: made outside a load (adapters), holds ordinary tensors
    std::uint8_t *base = nullptr;
    std::size_t size = 0;
    bool owns_memory = false;
    // by tensor data. Not in the tensor's own `extra` field: the CPU backend takes a weight with `extra` for a repacked one
    // and leaves its fast kernels
    std::unordered_map<const void *, std::shared_ptr<StoredTensor>> stored{};
    std::unordered_map<const void *, std::shared_ptr<StoredBias>> biases{};
};

// The tensor's entry in the store, or nullptr when the tensor is not a planned expert tensor in a store buffer.
StoredTensor *stored_tensor(const abi::Tensor *weight);

// The same for a planned bias.
const StoredBias *stored_bias(const abi::Tensor *bias);

abi::BufferTypeTable store_buffer_type_table();
abi::BufferTypeTable disk_buffer_type_table();
abi::Buffer *make_store_buffer(const abi::Api &api, abi::BufferType *type, std::uint8_t *base, std::size_t size, bool owns_memory);

}  // namespace slotpool
