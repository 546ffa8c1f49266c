#include "probe/work.h"

#include <chrono>

namespace slotpool::probe {

using Clock = std::chrono::steady_clock;

Sample repeat(Work &work, std::uint64_t least_ns) {
    Sample sample;
    const auto begin = Clock::now();
    do {
        const std::uint64_t amount = work.once();
        if (amount == 0) return {};
        sample.amount += amount;
        sample.ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count());
    } while (sample.ns < least_ns);
    return sample;
}

std::shared_ptr<abi::Buffer> fill_device(const abi::Api &api, abi::Device *device, std::uint64_t bytes) {
    abi::Buffer *buffer = api.buft_alloc(api.dev_buffer_type(device), bytes);
    if (buffer == nullptr) return nullptr;
    api.buffer_clear(buffer, 0);
    return {buffer, api.buffer_free};
}

}  // namespace slotpool::probe
