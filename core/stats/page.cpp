#include "stats/page.h"

#include <cstring>
#include <new>

namespace slotpool {
namespace {

constexpr char kCut[] = "...";

bool is_inside_character(const std::string &text, std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

template <class Record>
Record *make_all(std::uint8_t *at, std::size_t n) {
    auto *first = reinterpret_cast<Record *>(at);
    for (std::size_t i = 0; i < n; i++) new (first + i) Record();
    return first;
}

}  // namespace

StatsPage::StatsPage(void *memory, const PageSizes &sizes, std::size_t contexts_at, std::size_t context_stride) {
    auto *base = static_cast<std::uint8_t *>(memory);
    header_ = make_all<PageHeader>(base, 1);
    groups_ = make_all<PageGroup>(base + sizes.groups_at(), sizes.n_groups);
    tensors_ = make_all<PageTensor>(base + sizes.tensors_at(), sizes.n_tensors);
    devices_ = make_all<PageDevice>(base + sizes.devices_at(), sizes.n_devices);
    header_->version = kPageVersion;
    header_->header_bytes = sizeof(PageHeader);
    header_->group_bytes = sizeof(PageGroup);
    header_->tensor_bytes = sizeof(PageTensor);
    header_->device_bytes = sizeof(PageDevice);
    header_->counts_bytes = sizeof(GroupCounts);
    header_->n_groups = static_cast<std::uint32_t>(sizes.n_groups);
    header_->n_tensors = static_cast<std::uint32_t>(sizes.n_tensors);
    header_->n_devices = static_cast<std::uint32_t>(sizes.n_devices);
    header_->groups_at = sizes.groups_at();
    header_->tensors_at = sizes.tensors_at();
    header_->devices_at = sizes.devices_at();
    header_->contexts_at = contexts_at;
    header_->context_bytes = context_stride;
}

// what is written after the odd number must not be seen before it, nor what is written before the even one after it
void StatsPage::begin_change() {
    header_->changes.store(header_->changes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
}

void StatsPage::end_change() { header_->changes.store(header_->changes.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

void put_text(const std::string &text, char *to, std::size_t room, bool keeps_end) {
    std::string shown = text.substr(0, text.find('\0'));
    if (shown.size() >= room) {
        const std::size_t n_kept = room - sizeof(kCut);
        std::size_t cut = keeps_end ? shown.size() - n_kept : n_kept;
        while (is_inside_character(shown, cut)) keeps_end ? cut++ : cut--;
        shown = keeps_end ? kCut + shown.substr(cut) : shown.substr(0, cut) + kCut;
    }
    std::memset(to, 0, room);
    std::memcpy(to, shown.data(), shown.size());
}

}  // namespace slotpool
