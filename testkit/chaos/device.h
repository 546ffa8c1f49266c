// One chaos device: its knobs, counters, memory and the two resources that streams take turns at.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "abi/ggml_api.h"
#include "counters.h"
#include "knobs.h"
#include "queue.h"

namespace chaos {

namespace abi = slotpool::abi;

constexpr int kPoison = 0xFF;

struct Device {
    int index = 0;
    std::string name, description;
    Knobs knobs;
    Counters counters;
    Queue link;                                   // one transfer at a time
    std::atomic<std::size_t> weights_on_link{0};  // bytes that are being written to buffers of weights
    std::mutex compute;                           // one graph at a time
    abi::Device ggml{};
    abi::BufferType buffer_type{};

    std::mutex mutex;  // of what is below
    std::deque<std::uint64_t> free_answers;
    double n_logged = 0;
    std::string graph_log;

    // What it says, true or not. Properties, which engines ask for many reasons, are no question.
    std::uint64_t free_bytes(bool is_question);
    // Takes so many bytes of the device's memory, or says no.
    bool take(std::uint64_t bytes);
    void give_back(std::uint64_t bytes);
};

Device &device(int index);  // of kMaxDevices, whether ggml knows of it or not
int n_devices();            // that ggml knows of, or would
// What the environment asked for and cannot be; empty where it can. It is read once, before anything is set.
const std::string &environment_error();
// Fills ggml's tables of a device (ggml_device.cpp) and of its buffer type (buffer.cpp).
void make_ggml_device(Device &device, abi::Registry *reg);
void make_buffer_type(Device &device);
abi::Backend *make_stream(Device &device);  // nullptr where there is no memory for it

// ---- what the library has of ggml (registry.cpp) ----
const abi::Api &api();
abi::Device *cpu_device();
abi::Backend *make_cpu_backend();  // of the plain CPU, never the slowed one (slow_cpu.cpp)

// The last thing that could not be done, for chaos_error(); counted as a failure of the device where there is one.
void set_error(Device *device, const std::string &error);
std::string last_error();

// Sleeps so long, to a few microseconds on a machine that is idle; with the knob catch_up less by what this thread's last waits took too long.
void wait_ns(double ns);

}  // namespace chaos
