#include "trace/blocks.h"

#include <array>

namespace slotpool::trace {
namespace {

constexpr std::uint32_t kStored = 0;
constexpr std::uint8_t kPrompt = 0;
constexpr std::uint8_t kGeneration = 1;
constexpr int kByteExperts = 256;  // ids of a group with more experts take two bytes

// CRC-32 as zlib has it (polynomial 0xEDB88320).
std::array<std::uint32_t, 256> make_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; byte++) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = (value & 1) != 0 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
        table[byte] = value;
    }
    return table;
}

std::uint32_t crc32(const std::string &text) {
    static const std::array<std::uint32_t, 256> table = make_table();
    std::uint32_t crc = 0xffffffffu;
    for (const char c : text) crc = table[(crc ^ static_cast<std::uint8_t>(c)) & 0xff] ^ (crc >> 8);
    return ~crc;
}

template <class Number, class Of>
void add_column(Bytes &bytes, const std::vector<Row> &rows, Of of) {
    for (const Row &row : rows) bytes.add(static_cast<Number>(of(row)));
}

}  // namespace

std::string block(const char *kind, const std::string &payload) {
    const auto size = static_cast<std::uint32_t>(payload.size());
    const std::string frame = Bytes().add(std::string(kind, 4)).add(kStored).add(size).add(size).text();
    return Bytes().add(frame).add(crc32(frame + payload)).add(payload).text();
}

std::string group_block(const GroupKind &kind) {
    Bytes bytes;
    bytes.add(kind.number).add(static_cast<std::uint32_t>(kind.layer)).add(static_cast<std::uint32_t>(kind.n_expert));
    bytes.add(static_cast<std::uint32_t>(kind.n_used)).add(static_cast<std::uint8_t>(kind.is_chunk ? 1 : 0));
    return block("GRUP", bytes.add(std::uint8_t{0}).text());  // ids only: no weights, no ranking
}

std::string section(const GroupKind &kind, const std::vector<Row> &rows) {
    Bytes bytes;
    std::uint64_t n_rows = 0;
    for (const Row &row : rows) n_rows += row.n_rows;
    bytes.add(kind.number).add(static_cast<std::uint32_t>(rows.size())).add(n_rows).add(rows.front().ubatch);
    std::uint64_t before = rows.front().ubatch;
    for (const Row &row : rows) {
        bytes.add(static_cast<std::int32_t>(static_cast<std::int64_t>(row.ubatch - before)));
        before = row.ubatch;
    }
    add_column<std::uint16_t>(bytes, rows, [](const Row &row) { return row.stream; });
    add_column<std::uint8_t>(bytes, rows, [](const Row &row) { return row.is_prompt ? kPrompt : kGeneration; });
    add_column<std::uint32_t>(bytes, rows, [](const Row &row) { return row.n_tokens; });
    add_column<std::uint32_t>(bytes, rows, [](const Row &row) { return row.n_rows; });
    for (const Row &row : rows) {
        for (const std::int32_t id : row.ids)
            kind.n_expert <= kByteExperts ? bytes.add(static_cast<std::uint8_t>(id)) : bytes.add(static_cast<std::uint16_t>(id));
    }
    return bytes.text();
}

std::string events_block(std::uint64_t n_dropped, const std::string &sections) { return block("EVTS", Bytes().add(n_dropped).add(sections).text()); }

std::string end_block(std::uint64_t n_events, std::uint64_t n_rows, std::uint64_t n_dropped) {
    return block("END.", Bytes().add(n_events).add(n_rows).add(n_dropped).text());
}

}  // namespace slotpool::trace
