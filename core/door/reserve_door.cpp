// The C interface over what llama.cpp would reserve: its breakdown by buffer type, a C++ map, as plain numbers by device.
//
// The engine exports the function for its own programs, with C++ types. A map of another C++ library would be misread, so whoever asks does it
// in a process of its own and compares the answer with what the engine logs.
#include <cstring>
#include <map>

#include "abi/ggml_api.h"
#include "os/library.h"
#include "slotpool.h"

using namespace slotpool;

namespace {

struct Bytes {
    std::size_t weights, context, compute;
};
using Breakdown = std::map<abi::BufferType *, Bytes>;
using BreakdownFn = Breakdown (*)(const void *context);

// Host memory of every kind, repacked weights included, is the CPU's.
std::string device_of(const abi::Api &api, abi::BufferType *type) {
    abi::Device *device = api.buft_is_host(type) ? nullptr : api.buft_device(type);
    return device == nullptr || api.dev_type(device) == abi::DeviceType::cpu ? "CPU" : api.dev_name(device);
}

}  // namespace

int slotpool_reserved_bytes(const void *breakdown, const void *ggml, const void *context, slotpool_reserved *out, int capacity) {
    abi::Api api;
    std::string error;
    void *library = os::library_of(ggml);
    if (library == nullptr || !abi::load(library, api, error) || !abi::verify(api, error)) return -1;
    std::map<std::string, Bytes> sums;
    for (const auto &[type, bytes] : reinterpret_cast<BreakdownFn>(const_cast<void *>(breakdown))(context)) {
        Bytes &sum = sums[device_of(api, type)];
        sum = {sum.weights + bytes.weights, sum.context + bytes.context, sum.compute + bytes.compute};
    }
    int n_written = 0;
    for (const auto &[name, bytes] : sums) {
        if (n_written == capacity) break;
        slotpool_reserved &one = out[n_written++];
        one = {bytes.weights, bytes.context, bytes.compute, {}};
        std::strncpy(one.name, name.c_str(), sizeof(one.name) - 1);
    }
    return static_cast<int>(sums.size());
}
