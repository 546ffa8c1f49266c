// An expert matmul computed for some experts of an event at a time, one call of the device's kernel per expert.
//
// All rows of an expert are in one call, as in the whole matmul, and the kernel computes expert by expert anyway: same bits. What one call
// for all cannot do: start before every slab is there, and find slabs that no stride connects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "dispatch/node_graph.h"
#include "dispatch/routing.h"

namespace slotpool {

class ExpertCalls {
   public:
    static constexpr std::size_t kScratchBytes = 8U << 20;  // small beside the rail, so no budget counts it

    ExpertCalls(const abi::Api &api, abi::Backend *backend) : graph_(api, backend) {}

    // From here on calls are for `node`, whose rows `routing` describes.
    void begin(const abi::Tensor &node, const Routing &routing, int n_expert);
    // One more expert for the next run() or hand_over(). `weight` is a tensor with this expert alone, [ne0, ne1, 1].
    void add(std::int32_t expert, const abi::Tensor &weight);
    // True when the next run() should come before the next add(): rows of several experts lie in scratch memory in the meantime.
    bool is_full() const { return n_scratch_ > kScratchFloats / 2; }
    // Computes what was added, and puts the rows where the node wants them.
    abi::Status run();
    // Puts what was added, experts of a single row all, at the end of `nodes` instead. They are valid until reset().
    void hand_over(std::vector<abi::Tensor *> &nodes);
    // Nobody needs what was handed over any more.
    void reset() { n_calls_ = n_done_ = n_scratch_ = 0; }

   private:
    struct Call {
        abi::Tensor weight;
        abi::Tensor input;
        abi::Tensor ids;
        abi::Tensor output;
        std::int32_t id;           // of the one expert in the weight: 0
        const std::int32_t *rows;  // of the event, in order
        std::size_t n_rows;
        float *gathered;
        float *computed;
        std::vector<float> own;  // an expert with more rows than the scratch memory holds
    };
    static constexpr std::size_t kScratchFloats = kScratchBytes / sizeof(float);

    std::uint8_t *input_row(std::int32_t row) const;
    std::uint8_t *output_row(std::int32_t row) const;
    void place_one(Call &call);
    void gather(Call &call);
    float *take_scratch(Call &call, std::size_t n_floats);
    void scatter(const Call &call);

    NodeGraph graph_;
    abi::Tensor node_{};
    abi::Tensor input_{};
    std::int64_t n_used_ = 0;
    std::vector<std::int32_t> rows_;   // of the event, by expert
    std::vector<std::size_t> begins_;  // of each expert in rows_, one more at the end
    std::vector<std::size_t> next_;    // scratch of the sorting
    std::vector<std::int32_t> zeros_;  // ids of a tensor with one expert
    std::vector<float> scratch_;       // made when it is needed for the first time
    std::size_t n_scratch_ = 0;        // floats of it in use
    std::deque<Call> calls_;           // the first n_calls_ are in use; a deque: their tensors' addresses stay
    std::size_t n_calls_ = 0;
    std::size_t n_done_ = 0;            // of them: computed, or handed over
    std::vector<abi::Tensor *> nodes_;  // scratch
};

}  // namespace slotpool
