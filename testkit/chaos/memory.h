// Device memory: addresses that fault when the host touches them, and the private ones behind them where the bytes are.
#pragma once

#include <memory>

#include "device.h"
#include "ranges.h"

namespace chaos {

class Memory {
   public:
    // nullptr where the device has no room for it, or the host none.
    static std::shared_ptr<Memory> make(Device &device, std::size_t bytes);
    Memory(Device &device, std::size_t bytes) : device_(device), bytes_(bytes) {}
    ~Memory();
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    Device &device() const { return device_; }
    std::size_t bytes() const { return bytes_; }
    void *base() const { return public_; }
    abi::Buffer *host_buffer() const { return host_buffer_; }

    bool holds(const void *address, std::size_t n_bytes) const {
        const auto offset = static_cast<const std::uint8_t *>(address) - public_;
        return offset >= 0 && static_cast<std::size_t>(offset) <= bytes_ && n_bytes <= bytes_ - static_cast<std::size_t>(offset);
    }
    // The private address of a public one.
    std::uint8_t *at(const void *address) const { return private_ + (static_cast<const std::uint8_t *>(address) - public_); }
    void fill(int byte) const;
    Range all() const { return Range::of(private_, bytes_); }

   private:
    Device &device_;
    std::size_t bytes_;
    std::uint8_t *public_ = nullptr;
    std::uint8_t *private_ = nullptr;
    abi::Buffer *host_buffer_ = nullptr;  // the private bytes, as the CPU backend knows memory
};

// The memory that a tensor lies in; nullptr where that is not a chaos device's.
std::shared_ptr<Memory> memory_of(const abi::Tensor *tensor);

}  // namespace chaos
