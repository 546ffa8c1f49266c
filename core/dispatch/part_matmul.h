// An expert matmul in parts: experts in slots first, then those on their way into slots as they arrive, then those that only
// pass through. So reads of misses run while hits are computed.
#pragma once

#include <memory>
#include <string>

#include "dispatch/expert_calls.h"
#include "dispatch/layer_pool.h"
#include "transfer/slab_stream.h"

namespace slotpool {

class PartMatmul {
   public:
    // `ring_bytes` serves every group of the session (ring_bytes() of the largest).
    PartMatmul(const abi::Api &api, abi::Backend *backend, SlabSource &source, std::size_t ring_bytes)
        : calls_(api, backend), source_(source), ring_bytes_(ring_bytes) {}

    // Computes `node`, tensor `index` of `pool`, whose event is begun. On failure `error` says why when the store is the reason.
    abi::Status compute(const abi::Tensor &node, std::size_t index, LayerPool &pool, const Routing &routing, std::string &error);
    // The same as nodes at the end of `nodes`, which are valid until reset(): for an event whose experts are all there, a row each.
    void hand_over(const abi::Tensor &node, std::size_t index, LayerPool &pool, const Routing &routing, std::vector<abi::Tensor *> &nodes);
    void reset() { calls_.reset(); }
    // Makes the ring. False and one line in `error` when the system has no memory for it.
    bool make_ring(std::string &error);
    // Lets go of what is still on its way through.
    void stop_stream();

   private:
    abi::Status compute_slots(std::size_t index, LayerPool &pool, std::string &error);
    abi::Status compute_passing(std::size_t index, LayerPool &pool, std::string &error);
    void open_stream(std::size_t index, const LayerPool &pool);
    abi::Status run_when_full();
    template <class Wait>
    bool timed(LayerPool &pool, Wait wait);

    ExpertCalls calls_;
    SlabSource &source_;
    std::size_t ring_bytes_;
    std::unique_ptr<SlabStream> stream_;
    const LayerPool *stream_of_ = nullptr;  // compared, never followed
    std::uint64_t stream_event_ = 0;
};

}  // namespace slotpool
