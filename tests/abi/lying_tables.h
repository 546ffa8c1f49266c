// Tables of another order: a public function calls the entry that stands elsewhere.
#pragma once

#include "lie.h"

namespace lying {

struct Table {
    const char *name;
    int lead, entries;
};

constexpr Table kDevice = {"device", 0, 15};
constexpr Table kBufferType = {"buffer-type", 0, 6};
constexpr Table kBuffer = {"buffer", 0, 11};
constexpr Table kBackend = {"backend", 1, 16};
constexpr Table kRegistry = {"registry", 1, 4};

inline int place_of(const Table &table, int entry) {
    const std::string name = table.name;
    if (lie().rfind(name + "+", 0) == 0) return entry + static_cast<int>(number_after(name + "+", 0));
    int a = -1;
    int b = -1;
    if (std::sscanf(lie().c_str(), (name + ":%d,%d").c_str(), &a, &b) != 2) return entry;
    return entry == a ? b : entry == b ? a : entry;
}

inline void *word_of(const Table &table, const void *object, int word) { return static_cast<void *const *>(object)[table.lead + word]; }

template <class Result, class... Arguments>
Result call(const Table &table, int entry, const void *object, Arguments... arguments) {
    void *function = word_of(table, object, place_of(table, entry));
    return reinterpret_cast<Result (*)(const void *, Arguments...)>(function)(object, arguments...);
}

// The first word after the table.
template <class Pointer>
Pointer tail_of(const Table &table, const void *object) {
    const bool is_moved = is(std::string(table.name) + ":tail");
    const long more = number_after(std::string(table.name) + "+", 0);
    return static_cast<Pointer>(word_of(table, object, table.entries + static_cast<int>(more) + (is_moved ? 1 : 0)));
}

}  // namespace lying
