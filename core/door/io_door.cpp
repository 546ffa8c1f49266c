// The C interface over files and the reads in the background, for tests: the rest of the core uses them directly.
#include <memory>
#include <system_error>

#include "door/text.h"
#include "os/file.h"
#include "slotpool.h"
#include "store/reader.h"

using namespace slotpool;

struct slotpool_file {
    std::unique_ptr<os::File> file;
};

struct slotpool_reader {
    explicit slotpool_reader(int n_threads) : reader(n_threads) {}
    Reader reader;
};

namespace {

class Inverting final : public Sink {
   public:
    explicit Inverting(size_t unit) : unit_(unit) {}
    void put(const std::uint8_t *bytes, std::size_t offset, std::size_t size, std::uint8_t *to) const override {
        for (std::size_t i = 0; i < size - size % unit_; i++) to[offset + i] = static_cast<std::uint8_t>(~bytes[i]);
    }

   private:
    size_t unit_;
};

}  // namespace

struct slotpool_read {
    std::unique_ptr<Sink> sink;
    ReadRequest request;
};

slotpool_file *slotpool_file_open(const char *path, int direct, char *text, size_t size) {
    std::string error;
    std::unique_ptr<os::File> file = os::File::open(path, direct != 0, error);
    door::copy_text(error, text, size);
    return file ? new slotpool_file{std::move(file)} : nullptr;
}

void slotpool_file_close(slotpool_file *file) { delete file; }

size_t slotpool_file_alignment(const slotpool_file *file) { return file->file->alignment(); }

void slotpool_file_why_buffered(const slotpool_file *file, char *text, size_t size) { door::copy_text(file->file->why_buffered(), text, size); }

int slotpool_file_identity(const slotpool_file *file, uint64_t *n_bytes, int64_t *mtime_ns) {
    os::FileIdentity identity;
    if (!file->file->identity(identity)) return 0;
    *n_bytes = identity.size;
    *mtime_ns = identity.mtime_ns;
    return 1;
}

int slotpool_file_read(slotpool_file *file, void *to, uint64_t offset, size_t capacity, size_t needed, char *text, size_t size) {
    std::string error;
    const bool is_read = file->file->read(to, offset, capacity, needed, error);
    door::copy_text(error, text, size);
    return is_read ? 1 : 0;
}

int slotpool_file_read_anywhere(slotpool_file *file, void *to, uint64_t offset, size_t n_bytes, char *text, size_t size) {
    std::string error;
    const bool is_read = file->file->read_anywhere(to, offset, n_bytes, error);
    door::copy_text(error, text, size);
    return is_read ? 1 : 0;
}

slotpool_reader *slotpool_reader_new(int n_threads) try { return new slotpool_reader(n_threads); } catch (const std::system_error &) {
    return nullptr;
}

void slotpool_reader_free(slotpool_reader *reader) { delete reader; }

slotpool_read *slotpool_read_new(slotpool_file *file, void *to, uint64_t offset, size_t capacity, size_t needed) {
    auto *read = new slotpool_read;
    read->request.file = file->file.get();
    read->request.offset = offset;
    read->request.capacity = capacity;
    read->request.needed = needed;
    read->request.to = static_cast<std::uint8_t *>(to);
    return read;
}

slotpool_read *slotpool_read_new_inverted(slotpool_file *file, void *to, uint64_t offset, size_t n_bytes, size_t unit) {
    slotpool_read *read = slotpool_read_new(file, to, offset, n_bytes, n_bytes);
    read->sink = std::make_unique<Inverting>(unit);
    read->request.sink = read->sink.get();
    read->request.unit = unit;
    return read;
}

void slotpool_read_free(slotpool_read *read) { delete read; }

int slotpool_read_state(const slotpool_read *read) { return read->request.state.load(); }

void slotpool_read_error(const slotpool_read *read, char *text, size_t size) { door::copy_text(read->request.error, text, size); }

void slotpool_reader_submit(slotpool_reader *reader, slotpool_read *read) { reader->reader.submit(read->request); }

int slotpool_reader_wait(slotpool_reader *reader, slotpool_read *read) { return reader->reader.wait(read->request) ? 1 : 0; }

void slotpool_reader_cancel(slotpool_reader *reader, slotpool_read *read) { reader->reader.cancel(read->request); }
