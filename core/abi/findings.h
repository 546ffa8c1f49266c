// What the check found: compares one fact of the running ggml with the expected one, and says the first difference in a line.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

#include "abi/recorder.h"

namespace slotpool::abi {

template <class Number>
std::string listed(const Number *values, std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; i++) text += (i == 0 ? "" : ",") + std::to_string(values[i]);
    return text;
}

// At most `n` bytes of a text that may be anything, printable and on one line.
inline std::string printable(const char *text, std::size_t n) {
    if (text == nullptr) return "null";
    std::string known(text, std::find(text, text + n, '\0'));
    for (char &c : known) c = std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
    return known.empty() ? "nothing" : known;
}

class Findings {
   public:
    explicit Findings(std::string &error) : error_(error) {}

    bool equal(const std::string &what, const std::string &expected, const std::string &found) {
        if (expected == found) return true;
        error_ = "Expected ggml's " + what + " to be " + expected + ", found " + found;
        return false;
    }

    template <class Number>
    bool number(const char *what, Number expected, Number found) {
        return equal(what, std::to_string(expected), std::to_string(found));
    }

    // Compares addresses; neither is followed. `meaning` says what the expected one is.
    bool pointer(const char *what, const char *meaning, const void *expected, const void *found) {
        return equal(what, meaning, found == expected ? meaning : found == nullptr ? "null" : "another value");
    }

    bool holds(const char *what, const char *expected, bool ok, const char *found) { return equal(what, expected, ok ? expected : found); }

    bool made(const char *function, const void *result) {
        return holds((std::string("result of ") + function).c_str(), "an object", result != nullptr, "null");
    }

    // `call` hands `fake` to ggml, which must then call the word of it that `entry` stands in.
    template <class Entry, class Call>
    bool calls(const char *what, const Fake &fake, Entry entry, Call call) {
        recording().clear();
        call();
        const int word = fake.word_of(entry);
        if (std::count(recording().begin(), recording().end(), word) > 0) return true;
        const std::string found = recording().empty() ? "no call of the table" : "a call of word " + std::to_string(recording()[0]);
        return equal(what, "word " + std::to_string(word), found);
    }

   private:
    std::string &error_;
};

}  // namespace slotpool::abi
