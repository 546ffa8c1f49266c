#include "store/file_store.h"

#include <algorithm>

#include "os/printable.h"
#include "store/session.h"

namespace slotpool {
namespace {

// a read in flight is a thread that waits; more than four were not faster, fewer were (docs/log.md)
constexpr int kReaderThreads = 4;

std::uint64_t align_down(std::uint64_t n, std::size_t alignment) { return n / alignment * alignment; }
std::uint64_t align_up(std::uint64_t n, std::size_t alignment) { return align_down(n + alignment - 1, alignment); }

bool is_planned(const os::File &file, const PlannedFile &planned, std::string &error) {
    os::FileIdentity found;
    if (file.identity(found) && found == os::FileIdentity{planned.size, planned.mtime_ns}) return true;
    error = "Expected the file as it was when the model was loaded (" + std::to_string(planned.size) + " bytes), found it changed (" +
            std::to_string(found.size) + " bytes) - at " + os::printable(planned.path) + ". Load the model again";
    return false;
}

}  // namespace

std::unique_ptr<FileStore> FileStore::open(const Plan &plan, std::string &error) {
    std::unique_ptr<FileStore> store(new FileStore(plan, kReaderThreads));
    for (const PlannedFile &planned : plan.files) {
        auto file = os::File::open(planned.path, true, error);
        if (!file || !is_planned(*file, planned, error)) return nullptr;
        store->alignment_ = std::max(store->alignment_, file->alignment());
        store->files_.push_back(std::move(file));
    }
    return store;
}

std::uint64_t FileStore::place(const StoredTensor &tensor, int expert) const {
    return tensor.planned->offset + static_cast<std::uint64_t>(expert) * tensor.slab_bytes;
}

std::size_t FileStore::shift(const StoredTensor &tensor, int expert) const { return static_cast<std::size_t>(place(tensor, expert) % alignment_); }

bool FileStore::is_even(const StoredTensor &tensor) const { return tensor.slab_bytes % alignment_ == 0; }

void FileStore::describe(const StoredTensor &tensor, int first, int n, std::uint8_t *to, ReadRequest &request) const {
    const std::uint64_t begin = place(tensor, first);
    const std::uint64_t end = place(tensor, first + n);
    request.file = files_[static_cast<std::size_t>(tensor.planned->file)].get();
    request.offset = align_down(begin, alignment_);
    request.capacity = static_cast<std::size_t>(align_up(end, alignment_) - request.offset);
    request.needed = static_cast<std::size_t>(end - request.offset);
    request.to = to;
    request.sink = nullptr;
}

void FileStore::describe_through(const Sink &sink, std::size_t unit, const StoredTensor &tensor, int first, int n, std::uint8_t *to,
                                 ReadRequest &request) const {
    request.file = files_[static_cast<std::size_t>(tensor.planned->file)].get();
    request.offset = place(tensor, first);
    request.capacity = request.needed = static_cast<std::size_t>(n) * tensor.slab_bytes;
    request.to = to;
    request.sink = &sink;
    request.unit = unit;
}

bool FileStore::read(const StoredTensor &tensor, void *to, std::size_t offset, std::size_t size, std::string &error) const {
    return files_[static_cast<std::size_t>(tensor.planned->file)]->read_anywhere(to, tensor.planned->offset + offset, size, error);
}

bool FileStore::is_unchanged(const StoredTensor &tensor, std::string &error) const {
    const auto index = static_cast<std::size_t>(tensor.planned->file);
    return is_planned(*files_[index], plan_.files[index], error);
}

std::string FileStore::why_buffered() const {
    for (const auto &file : files_) {
        if (std::string reason = file->why_buffered(); !reason.empty()) return reason;
    }
    return {};
}

void FileStore::when_buffered(const std::function<void()> &tell) const {
    for (const auto &file : files_) file->when_buffered(tell);
}

}  // namespace slotpool
