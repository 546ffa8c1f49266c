// For programs whose backends are linked in: has them load what GGML_BACKEND_PATH names, which they otherwise never look at.
//
// ggml reads that variable when it looks for backends, and llama_backend_init looks for none where some are linked in. `slotpool exec`
// preloads this library into such a program; its llama_backend_init is found first, calls the program's own, and then loads the core
// through ggml's public function. It knows nothing of the core, needs only the C library, and does nothing anywhere else.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace {

template <class Fn>
Fn function(void *where, const char *name) {
    return reinterpret_cast<Fn>(dlsym(where, name));
}

// A program may have looked for backends already, because of an option.
bool is_loaded() {
    const auto by_name = function<void *(*)(const char *)>(RTLD_DEFAULT, "ggml_backend_reg_by_name");
    return by_name == nullptr || by_name("slotpool") != nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void llama_backend_init() {
    const auto own = function<void (*)()>(RTLD_NEXT, "llama_backend_init");
    if (own == nullptr) {
        std::fprintf(stderr, "slotpool: Expected the program's own llama_backend_init, found none. Run it without slotpool exec\n");
        std::exit(1);
    }
    own();
    const char *path = std::getenv("GGML_BACKEND_PATH");
    const auto load = function<void *(*)(const char *)>(RTLD_DEFAULT, "ggml_backend_load");
    if (path != nullptr && load != nullptr && !is_loaded()) load(path);
}
