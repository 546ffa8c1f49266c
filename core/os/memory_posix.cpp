// Anonymous memory on Linux: mmap, with huge pages asked for.
#include <sys/mman.h>

#include "os/memory.h"

namespace slotpool::os {

void *reserve_memory(std::size_t bytes) {
    void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    // advice only: slots work on small pages too, a little slower
    madvise(base, bytes, MADV_HUGEPAGE);
    return base;
}

void release_memory(void *base, std::size_t bytes) { munmap(base, bytes); }

}  // namespace slotpool::os
