// Memory and addresses by mmap; huge pages are asked for where slots lie.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <new>

#include "os/memory.h"

namespace slotpool::os {
namespace {

// Everything that reserve_memory gave and nobody released, for promised_memory(). Never destroyed: a program may free its
// contexts after our statics would be gone.
struct Reserved {
    std::mutex mutex;
    std::map<void *, std::size_t> bytes;
};

Reserved &reserved() {
    static auto *const all = new Reserved;
    return *all;
}

bool note(void *base, std::size_t bytes) {
    try {
        const std::lock_guard<std::mutex> lock(reserved().mutex);
        reserved().bytes[base] = bytes;
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

// in steps, so that looking takes no memory to speak of
std::size_t untouched_bytes(std::uint8_t *base, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::array<unsigned char, 1 << 14> is_there;
    std::size_t n_untouched = 0;
    for (std::size_t begin = 0; begin < bytes; begin += is_there.size() * page) {
        const std::size_t n_bytes = std::min(bytes - begin, is_there.size() * page);
        if (mincore(base + begin, n_bytes, is_there.data()) != 0) return 0;
        const auto n_pages = static_cast<std::ptrdiff_t>((n_bytes + page - 1) / page);
        n_untouched += static_cast<std::size_t>(
            std::count_if(is_there.begin(), is_there.begin() + n_pages, [](unsigned char flags) { return (flags & 1) == 0; }));
    }
    return n_untouched * page;
}

}  // namespace

void use_huge_pages(void *base, std::size_t bytes) {
    constexpr std::uintptr_t kHugePage = 2U << 20;
    const auto begin = (reinterpret_cast<std::uintptr_t>(base) + kHugePage - 1) / kHugePage * kHugePage;
    const auto end = (reinterpret_cast<std::uintptr_t>(base) + bytes) / kHugePage * kHugePage;
    if (begin >= end) return;
    madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
#ifdef __linux__
    constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, newer than the C library may be; an older kernel gets there in its own time
    madvise(reinterpret_cast<void *>(begin), end - begin, kCollapse);
#endif
}

void *reserve_memory(std::size_t bytes) {
    void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    // advice only: slots work on small pages too, a little slower
    madvise(base, bytes, MADV_HUGEPAGE);
    if (note(base, bytes)) return base;
    munmap(base, bytes);
    return nullptr;
}

void keep_from_children(void *base, std::size_t bytes) { madvise(base, bytes, MADV_DONTFORK); }

void release_memory(void *base, std::size_t bytes) {
    {
        const std::lock_guard<std::mutex> lock(reserved().mutex);
        reserved().bytes.erase(base);
    }
    munmap(base, bytes);
}

std::uint64_t promised_memory() {
    const std::lock_guard<std::mutex> lock(reserved().mutex);
    std::uint64_t promised = 0;
    for (const auto &[base, bytes] : reserved().bytes) promised += untouched_bytes(static_cast<std::uint8_t *>(base), bytes);
    return promised;
}

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
