// Keeps the list of pending work of all streams, and compares everything new with it.
#include "hazards.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "device.h"

namespace chaos {
namespace {

struct State {
    std::mutex mutex;
    std::vector<Touched> pending;
    std::string first;
};

// never destroyed: a program may free its contexts after our statics would be gone
State &state() {
    static State *const the_state = new State;
    return *the_state;
}

bool conflict(const Touch &a, const Touch &b) { return a.writes.touches(b.reads) || a.writes.touches(b.writes) || a.reads.touches(b.writes); }

void compare(const Touch &touch) {
    for (const Touched &other : state().pending) {
        if (touch.stream == other->stream || !conflict(touch, *other)) continue;
        touch.device->counters.add(c_hazards);
        if (state().first.empty()) state().first = touch.what + " while not executed: " + other->what;
        return;
    }
}

}  // namespace

void check_blocking(const Touch &touch) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    compare(touch);
}

void begin(const Touched &touch, bool poison) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    compare(*touch);
    if (poison) {
        Ranges fresh = touch->fresh;
        for (const Touched &other : state().pending) {
            fresh.remove(other->reads);
            fresh.remove(other->writes);
        }
        fresh.each([](void *address, std::size_t bytes) { std::memset(address, kPoison, bytes); });
    }
    state().pending.push_back(touch);
}

void finish(const Touched &touch) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    auto &pending = state().pending;
    pending.erase(std::find(pending.begin(), pending.end(), touch));
}

std::string first_hazard() {
    const std::lock_guard<std::mutex> lock(state().mutex);
    return state().first;
}

void forget_hazards() {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().first.clear();
}

}  // namespace chaos
