// A program that knows nothing of slotpool, as every llama.cpp program begins: loads the backends (GGML_BACKEND_PATH is
// ggml's own business) and lists the devices. Its exit code is 7, whatever happens.
#include <cstdio>

#include "ggml-backend.h"

int main() {
    ggml_backend_load_all();
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        std::printf("%s %d\n", ggml_backend_dev_name(device), static_cast<int>(ggml_backend_dev_type(device)));
    }
    return 7;
}
