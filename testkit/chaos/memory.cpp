// Two mappings of equal size: one without any rights, whose addresses everybody sees, and one with the bytes.
#include "memory.h"

#include <sys/mman.h>

#include <cstring>

namespace chaos {
namespace {

std::uint8_t *map(std::size_t bytes, int rights) {
    void *base = mmap(nullptr, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? nullptr : static_cast<std::uint8_t *>(base);
}

}  // namespace

std::shared_ptr<Memory> Memory::make(Device &device, std::size_t bytes) {
    auto memory = std::make_shared<Memory>(device, bytes);
    memory->public_ = map(bytes, PROT_NONE);
    memory->private_ = map(bytes, PROT_READ | PROT_WRITE);
    if (memory->public_ == nullptr || memory->private_ == nullptr) return nullptr;
    memory->host_buffer_ = api().dev_buffer_from_host_ptr(cpu_device(), memory->private_, bytes, bytes);
    if (memory->host_buffer_ == nullptr) return nullptr;
    if (device.knobs.is_on(k_poison)) memory->fill(kPoison);
    return memory;
}

Memory::~Memory() {
    if (host_buffer_ != nullptr) api().buffer_free(host_buffer_);
    if (private_ != nullptr) munmap(private_, bytes_);
    if (public_ != nullptr) munmap(public_, bytes_);
}

void Memory::fill(int byte) const { std::memset(private_, byte, bytes_); }

}  // namespace chaos
