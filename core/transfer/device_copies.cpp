#include "transfer/device_copies.h"

namespace slotpool {

DeviceCopies::~DeviceCopies() {
    for (auto &[serial, copy] : copies_) api_.buffer_free(copy.buffer);
}

abi::Tensor *DeviceCopies::of(const StoredBias &bias) {
    if (const auto found = copies_.find(bias.serial); found != copies_.end()) return &found->second;
    abi::BufferType *type = api_.dev_buffer_type(device_);
    abi::Buffer *buffer = api_.buft_alloc(type, api_.buft_alloc_size(type, &bias.tensor));
    if (buffer == nullptr) return nullptr;
    abi::Tensor copy = bias.tensor;
    copy.buffer = nullptr;
    copy.data = nullptr;
    if (api_.tensor_alloc(buffer, &copy, api_.buffer_base(buffer)) != abi::Status::success) {
        api_.buffer_free(buffer);
        return nullptr;
    }
    api_.tensor_set(&copy, bias.tensor.data, 0, api_.nbytes(&copy));
    return &copies_.emplace(bias.serial, copy).first->second;
}

}  // namespace slotpool
