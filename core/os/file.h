// A file that is read at given places, past the page cache where the system allows: what depends on the operating system
// about files is only here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace slotpool::os {

// What a file was when it was planned for; a file that is another one, or was changed since, must not be read.
struct FileIdentity {
    std::uint64_t size = 0;     // bytes
    std::int64_t mtime_ns = 0;  // last change, nanoseconds since the epoch
    bool operator==(const FileIdentity &other) const { return size == other.size && mtime_ns == other.mtime_ns; }
};

class File {
   public:
    // Opens a regular file for reading: directly (no page cache) when `direct` is asked for and the system allows it, else
    // buffered, and then why_buffered() says why. nullptr and one line in `error` when it cannot be opened.
    static std::unique_ptr<File> open(const std::string &path, bool direct, std::string &error);
    ~File();
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    const std::string &path() const { return path_; }
    // Of offset, length and memory address of a read; a power of two. 1 when the file was opened buffered. Never changes.
    std::size_t alignment() const { return alignment_; }
    // Empty while reads are direct. Safe to call from any thread.
    std::string why_buffered() const;
    // `tell` is called once there is a reason, by the thread that found it. Set before the file is read.
    void when_buffered(std::function<void()> tell);

    // Reads into `to` from `offset`; offset, capacity and address are aligned. At least `needed` bytes must be there (the
    // rest of the last block may lie past the end of the file). Repeats interrupted and short reads. A direct read that the
    // system refuses after all (EINVAL) is repeated buffered, and so is every later one; buffered reads leave no pages
    // behind. False and one line in `error` (path, offset, what the system said) when the bytes cannot be had.
    // Safe to call from several threads at a time.
    bool read(void *to, std::uint64_t offset, std::size_t capacity, std::size_t needed, std::string &error);
    // The same for any offset, length and address, through a bounce buffer where needed: for headers and dense weights.
    bool read_anywhere(void *to, std::uint64_t offset, std::size_t size, std::string &error);

    // The file as it is now. False when the system does not say.
    bool identity(FileIdentity &out) const;

   private:
    File() = default;
    struct State;
    std::unique_ptr<State> state_;
    std::string path_;
    std::size_t alignment_ = 1;
};

}  // namespace slotpool::os
