#include "dispatch/expert_calls.h"

#include <cstring>

namespace slotpool {
namespace {

// a [ne0, 1, n_rows] array of rows, one after the other
void shape_as_rows(abi::Tensor &tensor, std::size_t n_rows, void *data) {
    tensor.ne[1] = tensor.ne[3] = 1;
    tensor.ne[2] = static_cast<std::int64_t>(n_rows);
    tensor.nb[0] = sizeof(float);
    tensor.nb[1] = tensor.nb[2] = sizeof(float) * static_cast<std::size_t>(tensor.ne[0]);
    tensor.nb[3] = tensor.nb[2] * n_rows;
    tensor.data = data;
    tensor.view_src = nullptr;
    tensor.view_offs = 0;
}

}  // namespace

// sorts the event's rows by expert, in order within an expert
void ExpertCalls::begin(const abi::Tensor &node, const Routing &routing, int n_expert) {
    node_ = node;
    input_ = *node.src[1];
    n_used_ = routing.n_used;
    const std::size_t n_rows = routing.ids.size();
    begins_.assign(static_cast<std::size_t>(n_expert) + 1, 0);
    for (const std::int32_t expert : routing.ids) begins_[static_cast<std::size_t>(expert) + 1]++;
    for (std::size_t i = 1; i < begins_.size(); i++) begins_[i] += begins_[i - 1];
    rows_.resize(n_rows);
    next_ = begins_;
    for (std::size_t row = 0; row < n_rows; row++) rows_[next_[static_cast<std::size_t>(routing.ids[row])]++] = static_cast<std::int32_t>(row);
    zeros_.assign(n_rows, 0);
}

std::uint8_t *ExpertCalls::input_row(std::int32_t row) const {
    const std::int64_t token = row / n_used_;
    const std::int64_t k = row % n_used_ % input_.ne[1];  // gate and up read one row per token, down one per (token, k)
    return static_cast<std::uint8_t *>(input_.data) + static_cast<std::size_t>(k) * input_.nb[1] + static_cast<std::size_t>(token) * input_.nb[2];
}

std::uint8_t *ExpertCalls::output_row(std::int32_t row) const {
    const std::int64_t token = row / n_used_;
    const std::int64_t k = row % n_used_;
    return static_cast<std::uint8_t *>(node_.data) + static_cast<std::size_t>(k) * node_.nb[1] + static_cast<std::size_t>(token) * node_.nb[2];
}

void ExpertCalls::add(std::int32_t expert, const abi::Tensor &weight) {
    if (n_calls_ == calls_.size()) calls_.emplace_back();
    Call &call = calls_[n_calls_++];
    call.weight = weight;
    call.rows = rows_.data() + begins_[static_cast<std::size_t>(expert)];
    call.n_rows = begins_[static_cast<std::size_t>(expert) + 1] - begins_[static_cast<std::size_t>(expert)];
    call.input = input_;
    call.output = node_;
    call.ids = *node_.src[2];
    if (call.n_rows == 1) {
        place_one(call);
    } else {
        gather(call);
    }
    call.ids.ne[0] = call.ids.ne[2] = call.ids.ne[3] = 1;
    call.ids.ne[1] = static_cast<std::int64_t>(call.n_rows);
    call.ids.nb[0] = call.ids.nb[1] = sizeof(std::int32_t);
    call.ids.nb[2] = call.ids.nb[3] = sizeof(std::int32_t) * call.n_rows;
    call.id = 0;
    call.ids.data = call.n_rows == 1 ? &call.id : zeros_.data();
    call.ids.view_src = nullptr;
    call.output.src[0] = &call.weight;
    call.output.src[1] = &call.input;
    call.output.src[2] = &call.ids;
}

// a single row is read and written where it is
void ExpertCalls::place_one(Call &call) {
    shape_as_rows(call.input, 1, input_row(call.rows[0]));
    shape_as_rows(call.output, 1, output_row(call.rows[0]));
}

float *ExpertCalls::take_scratch(Call &call, std::size_t n_floats) {
    scratch_.resize(kScratchFloats);
    if (n_scratch_ + n_floats <= kScratchFloats) {
        n_scratch_ += n_floats;
        return scratch_.data() + n_scratch_ - n_floats;
    }
    n_scratch_ = kScratchFloats;
    call.own.resize(n_floats);
    return call.own.data();
}

void ExpertCalls::gather(Call &call) {
    const auto n_in = static_cast<std::size_t>(input_.ne[0]);
    call.gathered = take_scratch(call, (n_in + static_cast<std::size_t>(node_.ne[0])) * call.n_rows);
    call.computed = call.gathered + n_in * call.n_rows;
    for (std::size_t i = 0; i < call.n_rows; i++) std::memcpy(call.gathered + i * n_in, input_row(call.rows[i]), n_in * sizeof(float));
    shape_as_rows(call.input, call.n_rows, call.gathered);
    shape_as_rows(call.output, call.n_rows, call.computed);
}

void ExpertCalls::scatter(const Call &call) {
    if (call.n_rows == 1) return;
    const auto n_out = static_cast<std::size_t>(node_.ne[0]);
    for (std::size_t i = 0; i < call.n_rows; i++) std::memcpy(output_row(call.rows[i]), call.computed + i * n_out, n_out * sizeof(float));
}

abi::Status ExpertCalls::run() {
    const std::size_t first = n_done_;
    nodes_.clear();
    hand_over(nodes_);
    const abi::Status status = graph_.compute(nodes_);
    for (std::size_t i = first; i < n_calls_; i++) {
        if (status == abi::Status::success) scatter(calls_[i]);
        calls_[i].own = {};
    }
    n_calls_ = n_done_ = first;
    n_scratch_ = 0;
    return status;
}

void ExpertCalls::hand_over(std::vector<abi::Tensor *> &nodes) {
    for (; n_done_ < n_calls_; n_done_++) nodes.push_back(&calls_[n_done_].output);
}

}  // namespace slotpool
