#include "backend/engine_streams.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/registry.h"

namespace slotpool::engine_streams {
namespace {

using Free = void (*)(abi::Backend *);

struct Stream {
    std::uint64_t number;
    abi::Backend *backend;
    abi::Device *device;
    std::thread::id maker;
    Free own_free;
};

struct Streams {
    std::mutex mutex;
    std::vector<Stream> live;  // in the order in which they were made
    std::uint64_t n_made = 0;
};

// never destroyed: a program may free its contexts after our statics would be gone
Streams &streams() {
    static Streams *const the_streams = new Streams;
    return *the_streams;
}

void free_stream(abi::Backend *backend) {
    Free own_free = nullptr;
    {
        const std::lock_guard<std::mutex> lock(streams().mutex);
        auto &live = streams().live;
        const auto found = std::find_if(live.begin(), live.end(), [&](const Stream &one) { return one.backend == backend; });
        own_free = found->own_free;
        live.erase(found);
    }
    own_free(backend);
}

}  // namespace

void note(abi::Backend *stream, abi::Device *device) {
    const std::lock_guard<std::mutex> lock(streams().mutex);
    streams().live.push_back({++streams().n_made, stream, device, std::this_thread::get_id(), stream->iface.free});
    stream->iface.free = free_stream;
}

std::uint64_t made_last(abi::Device *device) {
    const std::lock_guard<std::mutex> lock(streams().mutex);
    const auto &live = streams().live;
    const auto is_it = [&](const Stream &one) { return one.device == device && one.maker == std::this_thread::get_id(); };
    const auto found = std::find_if(live.rbegin(), live.rend(), is_it);
    return found == live.rend() ? 0 : found->number;
}

void synchronize(std::uint64_t number) {
    abi::Backend *backend = nullptr;
    {
        const std::lock_guard<std::mutex> lock(streams().mutex);
        const auto &live = streams().live;
        const auto found = std::find_if(live.begin(), live.end(), [&](const Stream &one) { return one.number == number; });
        if (found != live.end()) backend = found->backend;
    }
    // of the context that is waiting: it does not go meanwhile
    if (backend != nullptr) registry_api().synchronize(backend);
}

}  // namespace slotpool::engine_streams
