// Keeps the list of pending work of all streams, and compares everything new with it.
#include "hazards.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "device.h"

namespace chaos {
namespace {

// A write that nobody ordered before or after the work, into experts that it may read.
struct Suspect {
    std::string what;
    Ranges writes;
};

struct Pending {
    Touched touch;
    std::vector<Suspect> suspects;
};

struct State {
    std::mutex mutex;
    std::vector<Pending> pending;
    std::string first;
};

// never destroyed: a program may free its contexts after our statics would be gone
State &state() {
    static State *const the_state = new State;
    return *the_state;
}

bool conflict(const Touch &a, const Touch &b) { return a.writes.touches(b.reads) || a.writes.touches(b.writes) || a.reads.touches(b.writes); }

void count(const Touch &touch, const std::string &what) {
    touch.device->counters.add(c_hazards);
    if (state().first.empty()) state().first = what;
}

std::string unordered(const std::string &what, const std::string &pending) { return what + " while not executed: " + pending; }

// Counts at most one hazard; of writes into experts that pending work or this may read, keeps note.
std::vector<Suspect> compare(const Touch &touch) {
    std::vector<Suspect> suspects;
    bool is_counted = false;
    for (Pending &other : state().pending) {
        if (touch.stream == other.touch->stream) continue;
        if (touch.writes.touches(other.touch->maybe_reads)) other.suspects.push_back({touch.what, touch.writes});
        if (touch.maybe_reads.touches(other.touch->writes)) suspects.push_back({other.touch->what, other.touch->writes});
        if (is_counted || !conflict(touch, *other.touch)) continue;
        count(touch, unordered(touch.what, other.touch->what));
        is_counted = true;
    }
    return suspects;
}

std::vector<Pending>::iterator pending_of(const Touched &touch) {
    return std::find_if(state().pending.begin(), state().pending.end(), [&](const Pending &one) { return one.touch == touch; });
}

}  // namespace

void check_blocking(const Touch &touch) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    compare(touch);
}

void begin(const Touched &touch, bool poison) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    std::vector<Suspect> suspects = compare(*touch);
    if (poison) {
        Ranges fresh = touch->fresh;
        for (const Pending &other : state().pending) {
            fresh.remove(other.touch->reads);
            fresh.remove(other.touch->maybe_reads);
            fresh.remove(other.touch->writes);
        }
        fresh.each([](void *address, std::size_t bytes) { std::memset(address, kPoison, bytes); });
    }
    state().pending.push_back({touch, std::move(suspects)});
}

void finish(const Touched &touch) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().pending.erase(pending_of(touch));
}

void uses(const Touched &touch, const Ranges &reads) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    for (const Suspect &suspect : pending_of(touch)->suspects) {
        if (suspect.writes.touches(reads)) count(*touch, unordered(suspect.what, touch->what));
    }
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
