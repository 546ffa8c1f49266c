// Which lie is told, and the real ggml behind it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace lying {

constexpr std::uint64_t kUnknown = 0xDEADBEEFDEADBEEF;  // what an unknown field holds: not an address, not a small number

inline const std::string &lie() {
    static const std::string text = std::getenv("SLOTPOOL_LIE") != nullptr ? std::getenv("SLOTPOOL_LIE") : "";
    return text;
}

inline bool is(const std::string &what) { return lie() == what; }

// The number after `prefix` in the lie; `otherwise` when it is another lie.
inline long number_after(const std::string &prefix, long otherwise) {
    return lie().rfind(prefix, 0) == 0 ? std::atol(lie().c_str() + prefix.size()) : otherwise;
}

inline void *find(const char *name) {
    static void *ggml = dlopen("libggml.so.0", RTLD_LAZY | RTLD_NOLOAD);
    void *found = dlsym(ggml, name);
    if (found == nullptr) std::fprintf(stderr, "lying_ggml: the real ggml has no %s\n", name), std::abort();
    return found;
}

#define REAL(function) (reinterpret_cast<decltype(&function)>(find(#function)))
#define OR_NULL(function) \
    if (is("null:" #function)) return nullptr

}  // namespace lying
