#include "dispatch/routing.h"

#include <cstring>

namespace slotpool {

void Routing::read(const abi::Tensor &view) {
    n_used = view.ne[0];
    n_tokens = view.ne[1];
    ids.resize(static_cast<std::size_t>(n_used * n_tokens));
    const auto *data = static_cast<const std::uint8_t *>(view.data);
    std::size_t row = 0;
    for (std::int64_t token = 0; token < n_tokens; token++) {
        for (std::int64_t k = 0; k < n_used; k++) {
            const std::size_t offset = static_cast<std::size_t>(token) * view.nb[1] + static_cast<std::size_t>(k) * view.nb[0];
            std::memcpy(&ids[row++], data + offset, sizeof(std::int32_t));
        }
    }
}

void Routing::read(const abi::Api &api, const abi::Tensor &view) {
    copied.resize(view.ne[0] * view.ne[1] == 0 ? 0 : api.nbytes(&view));
    if (!copied.empty()) api.tensor_get(&view, copied.data(), 0, copied.size());
    abi::Tensor here = view;
    here.data = copied.data();
    read(here);
}

}  // namespace slotpool
