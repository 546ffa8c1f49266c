#include "backend/dense_weights.h"

#include <mutex>
#include <set>

#include "backend/registry.h"
#include "os/memory.h"
#include "store/session.h"

namespace slotpool {
namespace {

struct Advised {
    std::mutex mutex;
    std::set<const abi::Buffer *> buffers;  // compared, never followed; another buffer at the address of one that is gone is not advised
};

// never destroyed: a program may build graphs after our statics would be gone
Advised &advised() {
    static Advised *const the_buffers = new Advised;
    return *the_buffers;
}

bool is_weights_of_the_engine(const abi::Api &api, abi::Buffer *buffer) {
    return api.buffer_usage(buffer) == abi::kUsageWeights && api.buffer_base(buffer) != nullptr && api.buft_is_host(api.buffer_type(buffer)) &&
           !is_store_type(buffer->buft);
}

}  // namespace

void put_on_huge_pages(const abi::Tensor *op) {
    const auto session = sessions::loading();
    if (!session || !session->plan.reads_files()) return;
    const abi::Api &api = registry_api();
    for (const abi::Tensor *src : op->src) {
        if (src == nullptr || src->buffer == nullptr || src->buffer->size == 0) continue;
        {
            const std::lock_guard<std::mutex> lock(advised().mutex);
            if (!advised().buffers.insert(src->buffer).second) continue;
        }
        if (is_weights_of_the_engine(api, src->buffer)) os::use_huge_pages(api.buffer_base(src->buffer), api.buffer_size(src->buffer));
    }
}

}  // namespace slotpool
