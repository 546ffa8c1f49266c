// Memory of this process: what depends on the operating system about memory is only here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace slotpool::os {

// Page-aligned anonymous memory, asking for huge pages; nullptr when the system refuses.
void *reserve_memory(std::size_t bytes);
// For memory that is read into directly: a child that this process forks does not get it. A read that is going on while it forks
// could otherwise end in the child's copy of a page.
void keep_from_children(void *base, std::size_t bytes);
// For both kinds, memory and addresses.
void release_memory(void *base, std::size_t bytes);
// Puts memory that is in use onto huge pages, as far as whole ones lie in it and the system can do it now. Its contents stay.
void use_huge_pages(void *base, std::size_t bytes);
// Bytes of reserve_memory that nobody has touched yet: the system still counts them as available.
std::uint64_t promised_memory();

// Addresses without memory behind them: reading or writing them is an error until make_usable(). Released with release_memory.
void *reserve_addresses(std::size_t bytes);
// Puts memory behind [address, address + bytes), to the next page boundaries. False when the system refuses.
bool make_usable(void *address, std::size_t bytes);

constexpr std::uint64_t kNoLimit = ~0ULL;

// What may still be taken, in bytes. kNoLimit where nothing limits or the system does not say.
struct AvailableMemory {
    std::uint64_t host = kNoLimit;    // as the system counts it, caches that can go included
    std::uint64_t cgroup = kNoLimit;  // the smallest headroom of this process's control groups, versions 1 and 2
};

// `root` stands for "/" in tests.
AvailableMemory available_memory(const std::string &root = "");

}  // namespace slotpool::os
