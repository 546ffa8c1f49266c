// The layout of a stats page, version 5: counters and facts of one session, for readers in other processes.
//
// Header, groups, tensors, devices; then a part per context, `context_bytes` apart, with a GroupCounts per group. All numbers are
// little endian, counters are eight bytes at a multiple of eight. Texts end with a zero; a text that is too long is cut and ends
// (a path: begins) with "...". slotpool/page/layout.py is the reader's side: a change here is a new version there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "stats/stats.h"

namespace slotpool {

constexpr std::uint64_t kPageMagic = 0x6c6f6f70746f6c73;  // "slotpool"
constexpr std::uint32_t kPageVersion = 5;

struct PageHeader {
    std::atomic<std::uint64_t> magic;  // written last: until it is there, nothing is
    std::uint32_t version;
    std::uint32_t header_bytes, group_bytes, tensor_bytes, device_bytes, counts_bytes;
    std::uint32_t n_groups, n_tensors, n_devices;
    std::uint32_t session;
    std::uint64_t groups_at, tensors_at, devices_at, contexts_at, context_bytes;
    std::uint64_t pid;              // as the process itself sees it
    std::uint64_t process_started;  // clock ticks since the system started: with the pid it names a process
    std::uint64_t started_ns;       // the session, since the epoch
    std::atomic<std::uint64_t> n_contexts;
    std::atomic<std::uint64_t> changes;  // odd while a text or a fact is being changed
    std::atomic<std::uint64_t> resets;   // how often the counters were set to zero
    std::uint32_t is_on_disk;
    std::uint32_t unused;
    char program[64];
    char model[1024];
    char why_buffered[256];
};

struct PageGroup {
    std::int32_t layer, n_expert, planned_slots, slots, device;
    std::uint32_t unused;
    std::uint64_t slab_bytes;
    char pass[16];
    char off_reason[256];
};

struct PageTensor {
    std::int32_t group;  // -1: not planned for, and `off_reason` says why
    std::uint16_t is_stored;
    std::uint16_t is_repacked;  // in its slots
    std::uint64_t slab_bytes;
    char role[32];
    char name[64];
    char off_reason[256];
};

struct PageDevice {
    DeviceMemory memory;
    char name[64];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a counter must be one store");
static_assert(sizeof(Count) == 8 && sizeof(Gauge) == 8 && sizeof(GroupCounts) == 304, "counters are cells of eight bytes");
static_assert(sizeof(PageHeader) == 1488 && sizeof(PageGroup) == 304 && sizeof(PageTensor) == 368 && sizeof(PageDevice) == 128, "no padding");

}  // namespace slotpool
