// Memory and addresses by mmap; huge pages are asked for where slots lie.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

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

std::size_t untouched_bytes(void *base, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> is_there((bytes + page - 1) / page);
    if (mincore(base, bytes, is_there.data()) != 0) return 0;
    return page * static_cast<std::size_t>(std::count_if(is_there.begin(), is_there.end(), [](unsigned char flags) { return (flags & 1) == 0; }));
}

}  // namespace

void *reserve_memory(std::size_t bytes) {
    void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    // advice only: slots work on small pages too, a little slower
    madvise(base, bytes, MADV_HUGEPAGE);
    madvise(base, bytes, MADV_DONTFORK);
    const std::lock_guard<std::mutex> lock(reserved().mutex);
    reserved().bytes[base] = bytes;
    return base;
}

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
    for (const auto &[base, bytes] : reserved().bytes) promised += untouched_bytes(base, bytes);
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
