// Objects made of recorders: how the check sees which entry of a table ggml calls, without trusting the table's layout.
//
// A fake is handed to ggml in place of a device, a buffer type and so on. Every word of it is a function of ours that notes
// its own place and returns, far beyond the end of any table: a ggml that looks elsewhere, or calls more, still calls us.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace slotpool::abi {

// The words called, in order. Of this thread: two checks may run at once.
inline std::vector<int> &recording() {
    thread_local std::vector<int> words;
    return words;
}

using Recorder = std::intptr_t (*)();

template <int Word>
std::intptr_t record() {
    recording().push_back(Word);
    return 64;  // whatever was asked for: not null, a sane alignment, not success
}

class Fake {
   public:
    static constexpr std::size_t kWords = 64;

    Fake() { write(std::make_index_sequence<kWords>()); }
    template <class T>
    T *as() {
        static_assert(sizeof(T) <= sizeof(bytes_) / 2, "room for entries we do not know");
        return reinterpret_cast<T *>(bytes_.data());
    }
    // The word that holds `pointer`, as read through a field of as<T>(); -1 for a pointer of someone else.
    template <class Pointer>
    int word_of(Pointer pointer) const {
        static_assert(sizeof(Pointer) == sizeof(Recorder), "a function or an object");
        for (std::size_t word = 0; word < kWords; word++) {
            if (std::memcmp(bytes_.data() + word * sizeof(pointer), &pointer, sizeof(pointer)) == 0) return static_cast<int>(word);
        }
        return -1;
    }

   private:
    template <std::size_t... Word>
    void write(std::index_sequence<Word...>) {
        const std::array<Recorder, kWords> recorders = {record<static_cast<int>(Word)>...};
        std::memcpy(bytes_.data(), recorders.data(), sizeof(bytes_));
    }
    alignas(64) std::array<unsigned char, kWords * sizeof(Recorder)> bytes_;  // not recorders: it is read as other types
};

}  // namespace slotpool::abi
