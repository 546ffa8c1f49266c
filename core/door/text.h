// Text across the C interface: truncated to the caller's buffer, always terminated.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

namespace slotpool::door {

inline void copy_text(const std::string &from, char *text, std::size_t size) {
    if (text == nullptr || size == 0) return;
    const std::size_t n = std::min(from.size(), size - 1);
    std::memcpy(text, from.data(), n);
    text[n] = '\0';
}

}  // namespace slotpool::door
