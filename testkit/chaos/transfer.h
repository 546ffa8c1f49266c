// One transfer over the link of a device: what it touches, and doing it, now or later.
#pragma once

#include <memory>

#include "hazards.h"
#include "memory.h"

namespace chaos {

class Transfer {
   public:
    enum Direction { to_device, to_host };

    // `tensor` lies in a chaos device's memory and is not needed any more afterwards; `host` is, until the transfer has run.
    Transfer(const abi::Tensor *tensor, std::size_t offset, std::size_t bytes, void *host, Direction direction);
    Touch touch(const Stream *stream) const;
    // Takes the link, waits as long as the device's knobs say, and moves the bytes.
    void run(bool is_blocking) const;

   private:
    std::shared_ptr<Memory> memory_;
    std::uint8_t *device_;
    void *host_;
    std::size_t bytes_;
    Direction direction_;
    bool is_weight_;
    std::string what_;
};

}  // namespace chaos
