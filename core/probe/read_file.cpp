// Slabs of a file read as the pool reads them, with so many in flight.
#include <algorithm>
#include <vector>

#include "os/file.h"
#include "os/memory.h"
#include "probe/work.h"
#include "store/reader.h"

namespace slotpool::probe {
namespace {

constexpr int kThreads = 4;  // as the store has them

class ReadFile : public Work {
   public:
    ReadFile(std::unique_ptr<os::File> file, const FilePart &part, void *memory)
        : file_(std::move(file)), part_(part), memory_(memory), requests_(static_cast<std::size_t>(part.depth)), reader_(kThreads) {
        for (std::size_t i = 0; i < requests_.size(); i++) {
            requests_[i].file = file_.get();
            requests_[i].to = static_cast<std::uint8_t *>(memory) + i * part.slab_bytes;
            requests_[i].capacity = requests_[i].needed = part.slab_bytes;
        }
    }
    ~ReadFile() override {
        for (ReadRequest &request : requests_) reader_.cancel(request);
        os::release_memory(memory_, part_.slab_bytes * requests_.size());
    }

    // The oldest read ends and the next one begins: so many are always in flight.
    std::uint64_t once() override {
        if (n_submitted_ == 0) {
            for (ReadRequest &request : requests_) submit(request);
        }
        ReadRequest &oldest = requests_[n_submitted_ % requests_.size()];
        if (!reader_.wait(oldest)) return 0;
        submit(oldest);
        return part_.slab_bytes;
    }

   private:
    void submit(ReadRequest &request) {
        const std::uint64_t n_places = (part_.end - part_.begin - part_.slab_bytes) / file_->alignment() + 1;
        random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
        request.offset = part_.begin + (random_ >> 16) % n_places * file_->alignment();
        reader_.submit(request);
        n_submitted_++;
    }

    std::unique_ptr<os::File> file_;
    FilePart part_;
    void *memory_;
    std::vector<ReadRequest> requests_;
    Reader reader_;
    std::uint64_t random_ = 0x5107;
    std::size_t n_submitted_ = 0;
};

}  // namespace

std::unique_ptr<Work> read_file(const FilePart &part, std::string &why_buffered, std::string &error) {
    std::unique_ptr<os::File> file = os::File::open(part.path, true, error);
    if (!file) return nullptr;
    FilePart whole = part;  // in whole blocks, inside what was asked for
    const std::uint64_t block = std::max<std::uint64_t>(4096, file->alignment());
    whole.begin = (part.begin + block - 1) / block * block;
    whole.slab_bytes = part.slab_bytes / block * block;
    if (whole.slab_bytes == 0 || part.depth < 1 || part.end < whole.begin || part.end - whole.begin < whole.slab_bytes) {
        error = "Expected a part of the file that holds a slab of whole blocks, found " + std::to_string(part.slab_bytes) + " bytes in " +
                std::to_string(part.begin) + " to " + std::to_string(part.end);
        return nullptr;
    }
    void *memory = os::reserve_memory(whole.slab_bytes * static_cast<std::size_t>(whole.depth));
    if (memory == nullptr) {
        error = "Expected memory for " + std::to_string(whole.depth) + " slabs, found none";
        return nullptr;
    }
    why_buffered = file->why_buffered();
    return std::make_unique<ReadFile>(std::move(file), whole, memory);
}

}  // namespace slotpool::probe
