// Moves bytes between host and device, at the speed of the link.
#include "transfer.h"

#include <cstring>

namespace chaos {

Transfer::Transfer(const abi::Tensor *tensor, std::size_t offset, std::size_t bytes, void *host, Direction direction)
    : memory_(memory_of(tensor)), device_(memory_->at(tensor->data) + offset), host_(host), bytes_(bytes), direction_(direction) {
    const abi::Buffer *buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
    is_weight_ = buffer->usage == abi::kUsageWeights;
    what_ = std::string(direction == to_host ? "read of " : "write of ") + tensor->name + " on " + memory_->device().name;
}

Touch Transfer::touch(const Stream *stream) const {
    const Range there = Range::of(device_, bytes_), here = Range::of(host_, bytes_);
    const Range from = direction_ == to_host ? there : here, to = direction_ == to_host ? here : there;
    return {stream, &memory_->device(), what_, Ranges(from), Ranges(to), Ranges(to), {}};
}

void Transfer::run(bool is_blocking) const {
    Device &device = memory_->device();
    if (direction_ == to_host && !is_weight_) device.counters.add_read(device.weights_on_link);
    const std::lock_guard<Queue> lock(device.link);
    if (direction_ == to_device && is_weight_) device.weights_on_link = bytes_;
    const double speed = device.knobs[k_link_bytes_per_second];
    wait_ns(device.knobs[k_link_latency_ns] + (speed > 0 ? 1e9 * static_cast<double>(bytes_) / speed : 0));
    if (direction_ == to_host) {
        std::memcpy(host_, device_, bytes_);
    } else {
        std::memcpy(device_, host_, bytes_);
    }
    if (direction_ == to_device && is_weight_) device.weights_on_link = 0;
    device.counters.add_transfer(direction_ == to_host, is_weight_, is_blocking, bytes_);
}

}  // namespace chaos
