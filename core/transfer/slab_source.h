// Where slabs come from: the one seam between tiers. Host memory has them at once, a file later; whoever fills slots
// does not know which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "repack/repacking.h"
#include "store/reader.h"
#include "store/session.h"

namespace slotpool {

// A run of neighbouring slabs on its way into memory of ours. Must stay where it is until finish() or drop().
struct Fetch {
    const StoredTensor *tensor = nullptr;
    std::uint8_t *slabs = nullptr;  // where the first slab of the run begins, known from begin()
    ReadRequest request{};
    bool is_verified = false;  // it is there, and the file is the one that was planned for
};

class SlabSource {
   public:
    virtual ~SlabSource() = default;
    // The layout that slabs have when they are there; nullptr: as the store has them.
    virtual const RepackedLayout *layout(const StoredTensor &) const { return nullptr; }
    // Bytes that n neighbouring slabs need, wherever they begin; such rooms follow each other aligned.
    virtual std::size_t room(const StoredTensor &tensor, int n) const = 0;
    // True when every slab of the tensor begins equally far into its room, `shift` bytes.
    virtual bool is_even(const StoredTensor &tensor, std::size_t &shift) const = 0;
    // Brings the slabs [first, first + n) into the room at `to`.
    virtual void begin(const StoredTensor &tensor, int first, int n, std::uint8_t *to, Fetch &fetch) = 0;
    virtual bool is_done(const Fetch &fetch) const = 0;
    // Waits until the bytes are there. False and one line in `error` when they will not come.
    virtual bool finish(Fetch &fetch, std::string &error) = 0;
    // Waits until nothing writes into the room any more; the bytes are not wanted.
    virtual void drop(Fetch &fetch) = 0;
};

// The source of a session's slabs: its files when it has some, host memory when not. With a `repacking` the slabs of files come in the
// layouts that it knows.
std::unique_ptr<SlabSource> make_slab_source(const Session &session, std::unique_ptr<Repacking> repacking = nullptr);

}  // namespace slotpool
