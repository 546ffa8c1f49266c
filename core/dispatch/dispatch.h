// The expert matmuls of one context on one pooled device. Two ways: from slots in host memory that the device's kernels read in place
// (HostDispatch), and from slots on any device (DeviceDispatch).
//
// Correct by construction: a row of an expert matmul is computed exactly once, by one call of a kernel, from a slab that is known to
// be its expert's.
#pragma once

#include <cstddef>
#include <memory>

#include "abi/ggml_api.h"
#include "dispatch/context.h"

namespace slotpool {

// A wrong slot map, one changed byte in every slot, or one changed bit in one of them: for the tools that must find damage.
enum class Damage { swapped_slots, changed_byte, changed_bit };

class Dispatch {
   public:
    virtual ~Dispatch() = default;
    // One split of the graph. Returns when its results are complete.
    virtual abi::Status compute(abi::Graph *graph) = 0;
    virtual void set_n_threads(int n_threads) = 0;
    virtual void set_abort_callback(abi::AbortCallback callback, void *data) = 0;
    // Returns the number of slots touched.
    virtual int damage(std::size_t group, Damage damage) = 0;
};

// What a dispatch works with: the ggml that called us, one pooled device, and the number of MUL_MAT_ID.
struct Engine {
    const abi::Api &api;
    abi::Device *device;
    int op_mul_mat_id;
};

// The dispatch for a context of this session. nullptr when the device gives no backend.
std::unique_ptr<Dispatch> make_dispatch(const Engine &engine, Context &context, const Session *session);

}  // namespace slotpool
