// Copies between host memory and a device through ggml's blocking functions, as the uploader makes them.
#include <algorithm>

#include "os/memory.h"
#include "probe/work.h"

namespace slotpool::probe {
namespace {

constexpr std::size_t kRooms = 4;  // slabs that the device has room for: copies go to one after the other
constexpr std::uint8_t kByte = 0x33;

class Copy : public Work {
   public:
    Copy(const abi::Api &api, const Copies &copies) : api_(api), copies_(copies) {}
    ~Copy() override {
        if (pinned_ != nullptr) api_.buffer_free(pinned_);
        if (pinned_ == nullptr && host_ != nullptr) os::release_memory(host_, copies_.host_bytes);
        if (rooms_ != nullptr) api_.buffer_free(rooms_);
        if (context_ != nullptr) api_.free(context_);
    }

    bool make(abi::Device *device, std::string &error) { return take_host(device, error) && take_rooms(device, error); }

    std::uint64_t once() override {
        std::uint8_t *at = host_ + (n_done_ % n_slabs()) * copies_.slab_bytes;
        const std::size_t offset = n_done_ % kRooms * copies_.slab_bytes;
        n_done_++;
        if (copies_.to_host) api_.tensor_get(tensor_, at, offset, copies_.slab_bytes);
        if (!copies_.to_host) api_.tensor_set(tensor_, at, offset, copies_.slab_bytes);
        return copies_.slab_bytes;
    }

   private:
    std::size_t n_slabs() const { return std::max<std::size_t>(1, copies_.host_bytes / copies_.slab_bytes); }

    bool take_host(abi::Device *device, std::string &error) {
        copies_.host_bytes = n_slabs() * copies_.slab_bytes;
        abi::BufferType *type = copies_.is_pinned ? api_.dev_host_buffer_type(device) : nullptr;
        if (copies_.is_pinned && type == nullptr) {
            error = std::string(api_.dev_name(device)) + " has no host memory of its own";
            return false;
        }
        if (type != nullptr) pinned_ = api_.buft_alloc(type, copies_.host_bytes);
        host_ = static_cast<std::uint8_t *>(type == nullptr      ? os::reserve_memory(copies_.host_bytes)
                                            : pinned_ == nullptr ? nullptr
                                                                 : api_.buffer_base(pinned_));
        if (host_ != nullptr) std::fill_n(host_, copies_.host_bytes, kByte);
        if (host_ == nullptr) error = "Expected " + std::to_string(copies_.host_bytes) + " bytes of host memory, found none";
        return host_ != nullptr;
    }

    bool take_rooms(abi::Device *device, std::string &error) {
        abi::BufferType *type = api_.dev_buffer_type(device);
        const std::size_t bytes = kRooms * copies_.slab_bytes;
        context_ = api_.init({api_.tensor_overhead(), nullptr, true});
        if (context_ != nullptr) tensor_ = api_.new_tensor_4d(context_, abi::kTypeF32, static_cast<std::int64_t>(bytes / sizeof(float)), 1, 1, 1);
        if (tensor_ != nullptr) rooms_ = api_.buft_alloc(type, api_.buft_alloc_size(type, tensor_));
        if (rooms_ == nullptr || api_.tensor_alloc(rooms_, tensor_, api_.buffer_base(rooms_)) != abi::Status::success) {
            error = std::string(api_.dev_name(device)) + " has no memory for " + std::to_string(bytes) + " bytes";
            return false;
        }
        api_.buffer_clear(rooms_, 0);
        return true;
    }

    const abi::Api &api_;
    Copies copies_;
    abi::Context *context_ = nullptr;
    abi::Tensor *tensor_ = nullptr;
    abi::Buffer *rooms_ = nullptr, *pinned_ = nullptr;
    std::uint8_t *host_ = nullptr;
    std::size_t n_done_ = 0;
};

}  // namespace

std::unique_ptr<Work> copy_slabs(const abi::Api &api, abi::Device *device, const Copies &copies, std::string &error) {
    if (copies.slab_bytes == 0 || copies.slab_bytes % sizeof(float) != 0) {
        error = "Expected slabs of whole words, found " + std::to_string(copies.slab_bytes) + " bytes";
        return nullptr;
    }
    auto work = std::make_unique<Copy>(api, copies);
    return work->make(device, error) ? std::move(work) : nullptr;
}

}  // namespace slotpool::probe
