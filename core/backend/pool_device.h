// A pool device: takes the real expert matmuls of stored tensors whose slots are on one other device, and computes them there.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "abi/ggml_api.h"
#include "store/session.h"

namespace slotpool {

class PoolDevice {
   public:
    // The pool device over ggml's device of this name ("CPU": whatever its name is). Made once, never destroyed.
    static PoolDevice &over(const std::string &name, abi::Registry *reg);
    static bool is_there(const std::string &name);
    // Another ggml asks for devices: those made for the one before stay what they are, and are nobody's.
    static void forget_all();

    abi::Device *device() { return &table_; }
    const std::string &pooled_name() const { return pooled_name_; }
    // The device that has the slots. nullptr while ggml does not know it: an RPC server may be added later.
    abi::Device *pooled();
    // Of the CPU its own object, so that nothing is copied and the scheduler may move a layer's activation to us. Of another device a
    // copy at an address of its own: same memory, but the scheduler does not hand the nodes between two matmuls back to the device.
    abi::BufferType *buffer_type();
    bool is_cpu() const { return pooled_name_ == "CPU"; }
    // Which operations it takes, decided by shape alone (core/backend/pool_ops.cpp).
    bool takes(const abi::Tensor *op);

    const char *name() const { return name_.c_str(); }
    const char *description() const { return description_.c_str(); }

   private:
    PoolDevice(const std::string &pooled_name, abi::Registry *reg);

    std::string pooled_name_;
    std::string name_;
    std::string description_;
    abi::Device table_;
    std::mutex mutex_;
    std::atomic<abi::Device *> pooled_{nullptr};
    std::atomic<bool> has_type_{false};
    abi::BufferType type_{};
};

}  // namespace slotpool
