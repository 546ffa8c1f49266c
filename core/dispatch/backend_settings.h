// Threads and aborts of a backend of our own: they reach it only through its registry's functions.
#pragma once

#include "abi/ggml_api.h"

namespace slotpool {

template <class Function>
Function backend_function(const abi::Api &api, abi::Backend *backend, const char *name) {
    return reinterpret_cast<Function>(api.reg_proc_address(api.dev_reg(api.backend_device(backend)), name));
}

inline void set_backend_threads(const abi::Api &api, abi::Backend *backend, int n_threads) {
    const auto set = backend_function<abi::SetThreadsFn>(api, backend, "ggml_backend_set_n_threads");
    if (set != nullptr) set(backend, n_threads);
}

inline void set_backend_abort(const abi::Api &api, abi::Backend *backend, abi::AbortCallback callback, void *data) {
    const auto set = backend_function<abi::SetAbortCallbackFn>(api, backend, "ggml_backend_set_abort_callback");
    if (set != nullptr) set(backend, callback, data);
}

}  // namespace slotpool
