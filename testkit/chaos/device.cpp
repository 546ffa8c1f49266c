// The devices, their memory as they count it, errors, and waiting.
#include "device.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

namespace chaos {
namespace {

struct Error {
    std::mutex mutex;
    std::string text;
};

// never destroyed, like the devices: a program may free its contexts after our statics would be gone
Error &error() {
    static Error *const the_error = new Error;
    return *the_error;
}

std::string &environment() {
    static auto *const error = new std::string;
    return *error;
}

std::array<Device, kMaxDevices> &devices() {
    static auto *const all = [] {
        auto *made = new std::array<Device, kMaxDevices>;
        for (int i = 0; i < kMaxDevices; i++) {
            Device &one = (*made)[static_cast<std::size_t>(i)];
            one.index = i;
            one.name = "CHAOS" + std::to_string(i);
            one.description = "chaos device " + std::to_string(i);
            set_from_environment(one.knobs, environment());
        }
        return made;
    }();
    return *all;
}

}  // namespace

Device &device(int index) { return devices()[static_cast<std::size_t>(index)]; }

const std::string &environment_error() {
    devices();
    return environment();
}

int n_devices() { return static_cast<int>(device(0).knobs[k_devices]); }

std::uint64_t Device::free_bytes(bool is_question) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!free_answers.empty()) {
        const std::uint64_t answer = free_answers.front();
        if (is_question) free_answers.pop_front();
        return answer;
    }
    const auto total = static_cast<std::uint64_t>(knobs[k_total_bytes]);
    return total - std::min(total, counters[c_bytes_now]);
}

bool Device::take(std::uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto now = static_cast<double>(bytes);
    const bool fits = static_cast<double>(counters[c_bytes_now]) + now <= knobs[k_total_bytes] && !knobs.is_above(k_fail_above_bytes, now) &&
                      !knobs.is_above(k_fail_after_bytes, static_cast<double>(counters[c_bytes_given]) + now);
    if (fits) {
        counters.add_allocation(bytes);
    } else {
        counters.add(c_failed_allocations);
    }
    return fits;
}

void Device::give_back(std::uint64_t bytes) { counters.add_free(bytes); }

void set_error(Device *of, const std::string &text) {
    if (of != nullptr) of->counters.add(c_failures);
    const std::lock_guard<std::mutex> lock(error().mutex);
    error().text = text;
}

std::string last_error() {
    const std::lock_guard<std::mutex> lock(error().mutex);
    return error().text;
}

// What is measured may be off by so much, not more, and a thread that was stopped for long does not race for long.
constexpr double kMostCut = 0.1;
constexpr double kMostLateNs = 2e6;

void wait_ns(double ns) {
    if (ns < 1) return;
    // the usual slack of a thread, 50 us, is more than many a transfer; the thread is somebody else's, so it is given back
    const int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1L);
    // a busy machine wakes a thread late: with shorter waits after it, declared times add up to what was declared
    thread_local double late_ns = 0.0;
    const double cut_ns = std::min(late_ns, ns * kMostCut);
    const double left_ns = ns - cut_ns;
    const auto began = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::llround(left_ns)));
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    late_ns = device(0).knobs.is_on(k_catch_up) ? std::min(kMostLateNs, late_ns - cut_ns + std::max(0.0, took.count() - left_ns)) : 0.0;
    prctl(PR_SET_TIMERSLACK, static_cast<long>(slack));
}

}  // namespace chaos
