// Writes a stats page into memory that is given to it. Counters are written in place, by whoever counts; this is about the rest.
//
// One writer at a time (the caller's lock). A reader that finds the same even `changes` before and after has read whole texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "stats/page_layout.h"

namespace slotpool {

struct PageSizes {
    std::size_t n_groups = 0, n_tensors = 0, n_devices = 0;

    std::size_t groups_at() const { return sizeof(PageHeader); }
    std::size_t tensors_at() const { return groups_at() + n_groups * sizeof(PageGroup); }
    std::size_t devices_at() const { return tensors_at() + n_tensors * sizeof(PageTensor); }
    std::size_t bytes() const { return devices_at() + n_devices * sizeof(PageDevice); }
    std::size_t context_bytes() const { return n_groups * sizeof(GroupCounts); }
};

class StatsPage {
   public:
    // `memory` has sizes.bytes() zero bytes; contexts will be at `contexts_at`, `context_stride` bytes apart.
    StatsPage(void *memory, const PageSizes &sizes, std::size_t contexts_at, std::size_t context_stride);

    PageHeader &header() { return *header_; }
    PageGroup &group(std::size_t index) { return groups_[index]; }
    PageTensor &tensor(std::size_t index) { return tensors_[index]; }
    PageDevice &device(std::size_t index) { return devices_[index]; }

    // From here on readers may look. Everything that they see first was written before.
    void publish() { header_->magic.store(kPageMagic, std::memory_order_release); }
    // Runs `write`, which changes facts and texts.
    template <class Write>
    void change(Write write) {
        begin_change();
        write();
        end_change();
    }
    // One more part is there, zero or filled.
    void add_context() { header_->n_contexts.fetch_add(1, std::memory_order_release); }
    void count_reset() { header_->resets.fetch_add(1, std::memory_order_relaxed); }

   private:
    void begin_change();
    void end_change();

    PageHeader *header_;
    PageGroup *groups_;
    PageTensor *tensors_;
    PageDevice *devices_;
};

// Cut to the room, between characters: at its end, or, of a path, at its beginning.
void put_text(const std::string &text, char *to, std::size_t room, bool keeps_end = false);

template <std::size_t room>
void put_text(const std::string &text, char (&to)[room], bool keeps_end = false) {
    put_text(text, to, room, keeps_end);
}

}  // namespace slotpool
