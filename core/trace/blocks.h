// The blocks of a trace file, as docs/design/trace.md has them: bytes only. The header is written by whoever creates the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace slotpool::trace {

// What a group is, before any event of it.
struct GroupKind {
    std::uint32_t number = 0;  // in the file
    int layer = 0;
    int n_expert = 0;
    int n_used = 0;
    bool is_chunk = false;  // grovemoe's second pass
};

// One event as the file has it. `ubatch` counts through the whole file.
struct Row {
    std::uint64_t ubatch = 0;
    std::uint16_t stream = 0;
    bool is_prompt = false;
    std::uint32_t n_tokens = 0;  // of the ubatch
    std::uint32_t n_rows = 0;
    std::vector<std::int32_t> ids;
};

// Numbers in the file's order of bytes, one after the other.
class Bytes {
   public:
    template <class Number>
    Bytes &add(Number number) {
        for (std::size_t i = 0; i < sizeof(Number); i++) text_.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xff));
        return *this;
    }
    Bytes &add(const std::string &text) {
        text_ += text;
        return *this;
    }
    const std::string &text() const { return text_; }

   private:
    std::string text_;
};

// A block with its frame and checksum, not packed: the core has no deflate.
std::string block(const char *kind, const std::string &payload);
std::string group_block(const GroupKind &kind);
// The events of one group, for the payload of a block of events, which begins with the number of events dropped so far.
std::string section(const GroupKind &kind, const std::vector<Row> &rows);
std::string events_block(std::uint64_t n_dropped, const std::string &sections);
std::string end_block(std::uint64_t n_events, std::uint64_t n_rows, std::uint64_t n_dropped);

}  // namespace slotpool::trace
