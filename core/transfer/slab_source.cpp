#include "transfer/slab_source.h"

#include <cstring>
#include <utility>

namespace slotpool {
namespace {

class HostSource final : public SlabSource {
   public:
    std::size_t room(const StoredTensor &tensor, int n) const override { return static_cast<std::size_t>(n) * tensor.slab_bytes; }

    bool is_even(const StoredTensor &, std::size_t &shift) const override {
        shift = 0;
        return true;
    }

    void begin(const StoredTensor &tensor, int first, int n, std::uint8_t *to, Fetch &fetch) override {
        fetch.tensor = &tensor;
        fetch.slabs = to;
        std::memcpy(to, tensor.slab(first), room(tensor, n));
    }

    bool is_done(const Fetch &) const override { return true; }
    bool finish(Fetch &, std::string &) override { return true; }
    void drop(Fetch &) override {}
};

class FileSource final : public SlabSource {
   public:
    FileSource(FileStore &files, std::unique_ptr<Repacking> repacking) : files_(files), repacking_(std::move(repacking)) {}

    const RepackedLayout *layout(const StoredTensor &tensor) const override { return repacking_ ? repacking_->of(tensor) : nullptr; }

    // the worst case: the first slab begins at the last byte of an aligned block; what is changed on its way begins where its room does
    std::size_t room(const StoredTensor &tensor, int n) const override {
        if (layout(tensor) != nullptr) return static_cast<std::size_t>(n) * tensor.slab_bytes;
        const std::size_t alignment = files_.alignment();
        return (static_cast<std::size_t>(n) * tensor.slab_bytes + 2 * (alignment - 1)) / alignment * alignment;
    }

    bool is_even(const StoredTensor &tensor, std::size_t &shift) const override {
        const bool is_changed = layout(tensor) != nullptr;
        shift = is_changed ? 0 : files_.shift(tensor, 0);
        return is_changed || files_.is_even(tensor);
    }

    void begin(const StoredTensor &tensor, int first, int n, std::uint8_t *to, Fetch &fetch) override {
        fetch.tensor = &tensor;
        fetch.is_verified = false;
        if (const RepackedLayout *repacked = layout(tensor); repacked != nullptr) {
            fetch.slabs = to;
            files_.describe_through(*repacked, repacked->unit(), tensor, first, n, to, fetch.request);
        } else {
            fetch.slabs = to + files_.shift(tensor, first);
            files_.describe(tensor, first, n, to, fetch.request);
        }
        files_.reader().submit(fetch.request);
    }

    bool is_done(const Fetch &fetch) const override { return fetch.request.is_done(); }

    bool finish(Fetch &fetch, std::string &error) override {
        if (fetch.is_verified) return true;
        if (!files_.reader().wait(fetch.request)) {
            error = fetch.request.error;
            return false;
        }
        fetch.is_verified = files_.is_unchanged(*fetch.tensor, error);
        return fetch.is_verified;
    }

    void drop(Fetch &fetch) override { files_.reader().cancel(fetch.request); }

   private:
    FileStore &files_;
    std::unique_ptr<Repacking> repacking_;  // nullptr: slabs stay as the files have them
};

}  // namespace

std::unique_ptr<SlabSource> make_slab_source(const Session &session, std::unique_ptr<Repacking> repacking) {
    if (session.files) return std::make_unique<FileSource>(*session.files, std::move(repacking));
    return std::make_unique<HostSource>();
}

}  // namespace slotpool
