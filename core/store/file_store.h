// Where the experts of a session lie on disk: its open files, and the reads that bring slabs into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "os/file.h"
#include "plan/plan.h"
#include "store/reader.h"

namespace slotpool {

struct StoredTensor;

class FileStore {
   public:
    // Opens the plan's files. nullptr and one line in `error` when one cannot be opened or is not the one that was planned for.
    static std::unique_ptr<FileStore> open(const Plan &plan, std::string &error);

    // Of offset, length and memory address of every read; the largest of all files.
    std::size_t alignment() const { return alignment_; }
    // Where slab `expert` begins after the aligned place before it, in bytes; less than alignment().
    std::size_t shift(const StoredTensor &tensor, int expert) const;
    // True when every slab of the tensor has the same shift.
    bool is_even(const StoredTensor &tensor) const;

    // Describes the read of the neighbouring slabs [first, first + n) into `to`; the first one will begin at to + shift(first).
    void describe(const StoredTensor &tensor, int first, int n, std::uint8_t *to, ReadRequest &request) const;
    // The same through a sink that takes multiples of `unit` bytes; the first slab will begin at `to`.
    void describe_through(const Sink &sink, std::size_t unit, const StoredTensor &tensor, int first, int n, std::uint8_t *to,
                          ReadRequest &request) const;
    Reader &reader() { return reader_; }

    // Bytes of the whole tensor, read at once. False and one line in `error`.
    bool read(const StoredTensor &tensor, void *to, std::size_t offset, std::size_t size, std::string &error) const;
    // False when the tensor's file was changed since it was planned for. Asked after a read: then what was read is what was planned.
    bool is_unchanged(const StoredTensor &tensor, std::string &error) const;
    // Why files are not read directly, a line for all; empty when they are.
    std::string why_buffered() const;
    // `tell` is called when a reason comes up later, by the thread that found it. Set before anything is read.
    void when_buffered(const std::function<void()> &tell) const;

   private:
    FileStore(const Plan &plan, int n_threads) : plan_(plan), reader_(n_threads) {}
    std::uint64_t place(const StoredTensor &tensor, int expert) const;

    const Plan &plan_;
    std::vector<std::unique_ptr<os::File>> files_;
    std::size_t alignment_ = 1;
    Reader reader_;  // last: its threads end before the files close
};

}  // namespace slotpool
