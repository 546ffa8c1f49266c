// An expert matmul computed for some experts of an event at a time, one call of the device's kernel per expert.
//
// All rows of an expert are in one call, as in the whole matmul, and the kernel computes expert by expert anyway: same bits. What one call
// for all cannot do: start before every slab is there, and find slabs that no stride connects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "abi/ggml_api.h"
#include "dispatch/routing.h"

namespace slotpool {

class ExpertCalls {
   public:
    ExpertCalls(const abi::Api &api, abi::Backend *backend) : api_(api), backend_(backend) {}
    ~ExpertCalls();
    ExpertCalls(const ExpertCalls &) = delete;
    ExpertCalls &operator=(const ExpertCalls &) = delete;

    // From here on calls are for `node`, whose rows `routing` describes. False when memory is short.
    bool begin(const abi::Tensor &node, const Routing &routing, int n_expert);
    // One more expert for the next run(). `weight` is a tensor with this expert alone, [ne0, ne1, 1].
    void add(std::int32_t expert, const abi::Tensor &weight);
    bool is_empty() const { return n_calls_ == 0; }
    // Computes what was added, and puts the rows where the node wants them.
    abi::Status run();

   private:
    struct Call {
        abi::Tensor weight;
        abi::Tensor input;
        abi::Tensor ids;
        abi::Tensor output;
        const std::int32_t *rows;  // of the event, in order
        std::size_t n_rows;
        std::vector<float> gathered;
        std::vector<float> computed;
    };

    bool make_room(std::size_t n_calls);
    std::uint8_t *input_row(std::int32_t row) const;
    std::uint8_t *output_row(std::int32_t row) const;
    void place_one(Call &call);
    void gather(Call &call);
    void scatter(const Call &call);

    const abi::Api &api_;
    abi::Backend *backend_;
    abi::Context *graph_context_ = nullptr;
    abi::Graph *graph_ = nullptr;
    std::size_t graph_capacity_ = 0;

    abi::Tensor node_{};
    abi::Tensor input_{};
    std::int64_t n_used_ = 0;
    std::vector<std::int32_t> rows_;   // of the event, by expert
    std::vector<std::size_t> begins_;  // of each expert in rows_, one more at the end
    std::vector<std::size_t> next_;    // scratch of the sorting
    std::vector<std::int32_t> zeros_;  // ids of a tensor with one expert
    std::deque<Call> calls_;           // the first n_calls_ are in use; a deque: their tensors' addresses stay
    std::size_t n_calls_ = 0;
};

}  // namespace slotpool
