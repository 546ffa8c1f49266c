// Files on Linux: pread past the page cache (O_DIRECT) where the file system takes it, else buffered with the pages dropped.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <system_error>

#include "os/file.h"
#include "os/printable.h"

namespace slotpool::os {

static_assert(sizeof(off_t) == 8, "model files are larger than 2 GiB");

struct File::State {
    explicit State(File &of) : file(of) {}
    ~State() {
        if (descriptor >= 0) close(descriptor);
    }

    File &file;
    int descriptor = -1;
    std::atomic<bool> is_direct{true};
    std::mutex mutex;
    std::string why_buffered;  // guarded by the mutex; from the first reason on the file is buffered
    std::function<void()> tell;

    bool open(const std::string &path, bool direct, std::string &error);
    bool go_buffered(const std::string &reason);
    bool turn_buffered(const std::string &reason);
    bool is_well_formed(const void *to, std::uint64_t offset, std::size_t capacity, std::size_t needed, std::string &error) const;
    bool read(std::uint8_t *to, std::uint64_t offset, std::size_t capacity, std::size_t needed, std::string &error);
    ssize_t read_once(std::uint8_t *to, std::uint64_t offset, std::size_t size) const;
    bool goes_on(std::uint64_t offset, ssize_t n_read);
    void drop_pages(std::uint64_t offset, std::size_t size) const;
    bool bounce(std::uint8_t *to, std::uint64_t offset, std::size_t size, std::string &error);
};

namespace {

constexpr std::size_t kUnknownAlignment = 4096;  // of direct reads, where the system does not tell
constexpr std::size_t kMostAlignment = 4096;     // a page: where memory for slots and rings begins
constexpr std::size_t kBounceBytes = std::size_t{1} << 20;

bool is_power_of_two(std::size_t value) { return value != 0 && (value & (value - 1)) == 0; }
template <typename T>
T round_down(T value, std::size_t alignment) {
    return value - value % alignment;
}
template <typename T>
T round_up(T value, std::size_t alignment) {
    return round_down(value + alignment - 1, alignment);
}
std::size_t misalignment_of(const void *address, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(address) % alignment; }

std::string at_path(const std::string &path) { return " - at " + printable(path); }

std::string expected_bytes(std::size_t needed, std::uint64_t offset) {
    return "Expected " + std::to_string(needed) + " bytes at offset " + std::to_string(offset) + ", found ";
}

std::string system_text(int number) { return std::generic_category().message(number); }

std::string failed_after(std::size_t done, std::size_t needed, std::uint64_t offset, int number, const std::string &path) {
    return expected_bytes(needed, offset) + "an error after " + std::to_string(done) + ": " + system_text(number) + at_path(path);
}

std::string ended_after(std::size_t done, std::size_t needed, std::uint64_t offset, const std::string &path) {
    return expected_bytes(needed, offset) + "the end of the file after " + std::to_string(done) + at_path(path) + ". The file was cut?";
}

std::string cannot_open(int number, const std::string &path) { return "Expected a file to read, found: " + system_text(number) + at_path(path); }

bool is_regular(mode_t mode, const std::string &path, std::string &error) {
    if (S_ISREG(mode)) return true;
    const char *kind = S_ISDIR(mode) ? "directory" : S_ISFIFO(mode) ? "pipe" : S_ISSOCK(mode) ? "socket" : "device";
    error = std::string("Expected a regular file, found a ") + kind + at_path(path);
    return false;
}

// What statx says about direct reads of a file.
struct DirectReads {
    bool is_known = false;
    std::uint32_t memory_alignment = 0;
    std::uint32_t offset_alignment = 0;  // 0: this file has none

    bool are_refused() const { return is_known && offset_alignment == 0; }
    std::size_t alignment() const {
        const std::size_t larger = std::max(memory_alignment, offset_alignment);
        return is_known && is_power_of_two(larger) ? larger : kUnknownAlignment;
    }
};

// The answer is read by numbers: the headers of older systems, where this is built, have no names for them.
DirectReads direct_reads(int descriptor) {
    DirectReads reads;
#ifdef SYS_statx
    constexpr std::uint32_t kAsked = 0x2000;  // STATX_DIOALIGN, since Linux 6.1
    constexpr std::size_t kMemoryAt = 152, kOffsetAt = 156;
    alignas(8) unsigned char answer[256] = {};
    std::uint32_t told = 0;
    if (syscall(SYS_statx, descriptor, "", AT_EMPTY_PATH, kAsked, answer) != 0) return reads;
    std::memcpy(&told, answer, sizeof(told));
    std::memcpy(&reads.memory_alignment, answer + kMemoryAt, sizeof(reads.memory_alignment));
    std::memcpy(&reads.offset_alignment, answer + kOffsetAt, sizeof(reads.offset_alignment));
    reads.is_known = (told & kAsked) != 0;
#endif
    return reads;
}

int open_for_reading(const std::string &path, int more_flags) {
    int descriptor = -1;
    do descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | more_flags);
    while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

struct FreeMemory {
    void operator()(std::uint8_t *memory) const { std::free(memory); }
};
using Bounce = std::unique_ptr<std::uint8_t, FreeMemory>;

Bounce make_bounce(std::size_t alignment, std::size_t bytes) {
    void *memory = nullptr;
    const int failed = posix_memalign(&memory, std::max(alignment, sizeof(void *)), bytes);
    return Bounce(failed ? nullptr : static_cast<std::uint8_t *>(memory));
}

}  // namespace

// ---- open ----

std::unique_ptr<File> File::open(const std::string &path, bool direct, std::string &error) {
    std::unique_ptr<File> file(new File);
    file->path_ = path;
    file->state_ = std::make_unique<State>(*file);
    if (!file->state_->open(path, direct, error)) return nullptr;
    const DirectReads reads = direct_reads(file->state_->descriptor);
    if (reads.are_refused()) file->state_->go_buffered("the file system has no direct reads of this file");
    if (reads.alignment() > kMostAlignment) {
        file->state_->go_buffered("direct reads need blocks of " + std::to_string(reads.alignment()) + " bytes, more than slots are aligned to");
    }
    if (file->state_->is_direct) file->alignment_ = reads.alignment();
    return file;
}

File::~File() = default;

bool File::State::open(const std::string &path, bool direct, std::string &error) {
    struct stat facts {};
    // asked before: to open a pipe is to wait for its writer, and to open a device may start it
    if (stat(path.c_str(), &facts) == 0 && !is_regular(facts.st_mode, path, error)) return false;
    descriptor = open_for_reading(path, direct ? O_DIRECT : 0);
    const bool is_refused = direct && descriptor < 0 && errno == EINVAL;
    if (is_refused) descriptor = open_for_reading(path, 0);
    if (descriptor < 0 || fstat(descriptor, &facts) != 0) {
        error = cannot_open(errno, path);
        return false;
    }
    if (!direct || is_refused) go_buffered(is_refused ? "the file system has no direct reads" : "direct reads were not asked for");
    return is_regular(facts.st_mode, path, error);  // the path may have become another file in between
}

bool File::State::go_buffered(const std::string &reason) {
    const bool is_buffered = turn_buffered(reason);
    if (is_buffered && tell) tell();
    return is_buffered;
}

// From now on all reads are buffered: the descriptor itself changes, so it is the same file whatever its path names by now.
bool File::State::turn_buffered(const std::string &reason) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!why_buffered.empty()) return true;
    const int flags = fcntl(descriptor, F_GETFL);
    is_direct = false;  // before the descriptor changes: a read that runs now must see that it may have left pages
    if (flags < 0 || fcntl(descriptor, F_SETFL, flags & ~O_DIRECT) != 0) {
        is_direct = true;
        return false;
    }
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);  // read ahead would be pages that nobody drops
    why_buffered = reason;
    return true;
}

std::string File::why_buffered() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->why_buffered;
}

void File::when_buffered(std::function<void()> tell) { state_->tell = std::move(tell); }

bool File::identity(FileIdentity &out) const {
    struct stat facts {};
    if (fstat(state_->descriptor, &facts) != 0) return false;
    out.size = static_cast<std::uint64_t>(facts.st_size);
    out.mtime_ns = std::int64_t{facts.st_mtim.tv_sec} * 1000000000 + facts.st_mtim.tv_nsec;
    return true;
}

// ---- read ----

bool File::read(void *to, std::uint64_t offset, std::size_t capacity, std::size_t needed, std::string &error) {
    error.clear();
    if (!state_->is_well_formed(to, offset, capacity, needed, error)) return false;
    const bool is_read = state_->read(static_cast<std::uint8_t *>(to), offset, capacity, needed, error);
    if (!state_->is_direct) state_->drop_pages(offset, capacity);
    return is_read;
}

// The system says EINVAL to a misaligned read, which must not be taken for a file system without direct reads.
bool File::State::is_well_formed(const void *to, std::uint64_t offset, std::size_t capacity, std::size_t needed, std::string &error) const {
    const std::size_t alignment = file.alignment();
    const bool is_aligned = offset % alignment == 0 && capacity % alignment == 0 && misalignment_of(to, alignment) == 0;
    constexpr auto kLast = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
    const bool is_in_range = needed <= capacity && offset <= kLast && capacity <= kLast - offset;
    if (!is_aligned) {
        error = "Expected offset, length and address in multiples of " + std::to_string(alignment) + ", found offset " + std::to_string(offset) +
                ", length " + std::to_string(capacity) + " and an address " + std::to_string(misalignment_of(to, alignment)) + " bytes past one" +
                at_path(file.path());
    } else if (!is_in_range) {
        error = expected_bytes(needed, offset) + "room for " + std::to_string(capacity) + " in a file of at most 2^63 bytes" + at_path(file.path());
    }
    return is_aligned && is_in_range;
}

bool File::State::read(std::uint8_t *to, std::uint64_t offset, std::size_t capacity, std::size_t needed, std::string &error) {
    std::size_t done = 0;
    for (bool is_refused = false; done < needed;) {
        // a direct read that came back short goes on at the last block that is whole
        const std::size_t from = is_direct ? round_down(done, file.alignment()) : done;
        const ssize_t n_read = read_once(to + from, offset + from, capacity - from);
        if (n_read < 0 && errno == EINVAL && !is_refused && go_buffered("the system refused a direct read")) {
            is_refused = true;
            continue;
        }
        const std::size_t reached = from + static_cast<std::size_t>(std::max(n_read, ssize_t{0}));
        const bool is_stuck = reached <= done;
        if (n_read < 0) error = failed_after(done, needed, offset, errno, file.path());
        if (n_read >= 0 && is_stuck && !goes_on(offset + done, n_read)) error = ended_after(done, needed, offset, file.path());
        if (!error.empty()) return false;
        done = reached;  // not more: a repeated read that came back shorter may have written past its end
    }
    return true;
}

// Whether a read that came no further may come further still: a direct one that ends inside a block would do so for ever.
bool File::State::goes_on(std::uint64_t offset, ssize_t n_read) {
    FileIdentity now;
    const bool is_end = n_read == 0 || !file.identity(now) || now.size <= offset;
    return !is_end && go_buffered("direct reads end inside a block");
}

ssize_t File::State::read_once(std::uint8_t *to, std::uint64_t offset, std::size_t size) const {
    ssize_t n_read = -1;
    do n_read = pread(descriptor, to, size, static_cast<off_t>(offset));
    while (n_read < 0 && errno == EINTR);
    return n_read;
}

// Whole pages: the system keeps those that are dropped in part.
void File::State::drop_pages(std::uint64_t offset, std::size_t size) const {
    const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = round_down(offset, page_bytes);
    const std::uint64_t end = round_up(offset + size, page_bytes);
    posix_fadvise(descriptor, static_cast<off_t>(begin), static_cast<off_t>(end - begin), POSIX_FADV_DONTNEED);
}

// ---- read anywhere ----

bool File::read_anywhere(void *to, std::uint64_t offset, std::size_t size, std::string &error) {
    auto *next = static_cast<std::uint8_t *>(to);
    while (size > 0) {
        const std::size_t in_block = static_cast<std::size_t>(offset % alignment_);
        // straight into the caller's memory where it lies like the file; blocks that are needed in part go around
        const bool is_alike = misalignment_of(next, alignment_) == in_block;
        const std::size_t whole = round_down(size, alignment_);
        const bool is_straight = is_alike && in_block == 0 && whole > 0;
        const std::size_t up_to = is_alike ? alignment_ - in_block : std::max(kBounceBytes, alignment_) - in_block;
        const std::size_t n = is_straight ? whole : std::min(size, up_to);
        if (!(is_straight ? read(next, offset, n, n, error) : state_->bounce(next, offset, n, error))) return false;
        next += n;
        offset += n;
        size -= n;
    }
    return true;
}

bool File::State::bounce(std::uint8_t *to, std::uint64_t offset, std::size_t size, std::string &error) {
    const std::size_t in_block = static_cast<std::size_t>(offset % file.alignment());
    const std::size_t capacity = round_up(in_block + size, file.alignment());
    const Bounce memory = make_bounce(file.alignment(), capacity);
    if (!memory) {
        error = expected_bytes(size, offset) + "no memory to read them through" + at_path(file.path());
        return false;
    }
    const bool is_read = file.read(memory.get(), offset - in_block, capacity, in_block + size, error);
    if (is_read) std::memcpy(to, memory.get() + in_block, size);
    return is_read;
}

}  // namespace slotpool::os
