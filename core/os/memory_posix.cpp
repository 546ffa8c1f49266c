// Memory and addresses by mmap; huge pages are asked for where slots lie.
#include <sys/mman.h>
#include <unistd.h>

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

void *reserve_addresses(std::size_t bytes) {
    // more addresses than memory: without NORESERVE a strict system would count them as promised
    void *base = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? nullptr : base;
}

bool make_usable(void *address, std::size_t bytes) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(address) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(address) + bytes;
    return mprotect(reinterpret_cast<void *>(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
}

}  // namespace slotpool::os
