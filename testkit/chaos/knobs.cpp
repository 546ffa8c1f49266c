// Names and limits of the knobs, and what the environment says about them.
#include "knobs.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace chaos {
namespace {

struct Fact {
    const char *name;
    double least, start;
};

constexpr Fact kFacts[] = {
#define CHAOS_FACT(name, least, start) {#name, least, start},
    CHAOS_KNOBS(CHAOS_FACT)
#undef CHAOS_FACT
};

std::string variable_of(const char *name) {
    std::string variable = "CHAOS_";
    for (; *name != '\0'; name++) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(*name)));
    return variable;
}

}  // namespace

Knobs::Knobs() {
    for (std::size_t i = 0; i < kKnobs; i++) values_[i] = kFacts[i].start;
}

Knob knob_named(const char *name) {
    std::size_t i = 0;
    while (i < kKnobs && std::strcmp(kFacts[i].name, name) != 0) i++;
    return static_cast<Knob>(i);
}

std::string refusal(Knob knob, double value) {
    if (knob == kKnobs) return "Expected a knob of testkit/chaos/knobs.h, found another name";
    if (knob == k_devices && value > kMaxDevices)
        return "Expected at most " + std::to_string(kMaxDevices) + " devices, found " + std::to_string(value);
    if (std::isfinite(value) && value >= kFacts[knob].least) return {};
    return std::string("Expected ") + kFacts[knob].name + " of at least " + std::to_string(kFacts[knob].least) + ", found " + std::to_string(value);
}

bool set_from_environment(Knobs &knobs, std::string &error) {
    for (std::size_t i = 0; i < kKnobs; i++) {
        const char *text = std::getenv(variable_of(kFacts[i].name).c_str());
        if (text == nullptr) continue;
        char *end = nullptr;
        const double value = std::strtod(text, &end);
        error = *text == '\0' || *end != '\0' ? "Expected a number, found another text" : refusal(static_cast<Knob>(i), value);
        if (!error.empty()) {
            error += " - at " + variable_of(kFacts[i].name);
            return false;
        }
        knobs.set(static_cast<Knob>(i), value);
    }
    return true;
}

}  // namespace chaos
