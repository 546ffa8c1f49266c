// A path in a message: whatever its bytes are, it stays on its line.
#pragma once

#include <cstddef>
#include <string>

namespace slotpool::os {

// Bytes of the character at `at` that would end the line or steer the terminal: control characters of ASCII and of Latin-1,
// and the two line ends of Unicode. 0 for any other character.
inline std::size_t unprintable_bytes(const std::string &text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    if (byte(at) < 0x20 || byte(at) == 0x7f) return 1;
    if (byte(at) == 0xc2 && byte(at + 1) >= 0x80 && byte(at + 1) < 0xa0) return 2;
    const bool is_line_end = byte(at) == 0xe2 && byte(at + 1) == 0x80 && (byte(at + 2) == 0xa8 || byte(at + 2) == 0xa9);
    return is_line_end ? 3 : 0;
}

inline std::string printable(const std::string &path) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string line;
    for (std::size_t i = 0; i < path.size();) {
        const std::size_t end = i + unprintable_bytes(path, i);
        if (end == i) {
            line += path[i++];
            continue;
        }
        for (; i < end; i++) {
            const auto byte = static_cast<unsigned char>(path[i]);
            line += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
        }
    }
    return line;
}

}  // namespace slotpool::os
