// Loaded libraries on Linux: dladdr, dlopen and the list of loaded objects.
#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "os/library.h"

namespace slotpool::os {

std::string path_of(const void *address) {
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
    return info.dli_fname;
}

void *library_of(const void *address) {
    const std::string path = path_of(address);
    if (path.empty()) return nullptr;
    void *handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    // a program that carries ggml inside itself is not found by path, but by the empty name
    return handle != nullptr ? handle : dlopen(nullptr, RTLD_LAZY);
}

namespace {

struct Search {
    const char *prefix;
    std::string found;
};

int match_library(dl_phdr_info *info, std::size_t, void *data) {
    auto *search = static_cast<Search *>(data);
    const char *slash = std::strrchr(info->dlpi_name, '/');
    const char *file = slash != nullptr ? slash + 1 : info->dlpi_name;
    if (std::strncmp(file, search->prefix, std::strlen(search->prefix)) != 0) return 0;
    search->found = info->dlpi_name;
    return 1;
}

}  // namespace

void *loaded_library(const char *prefix) {
    Search search{prefix, {}};
    dl_iterate_phdr(match_library, &search);
    return search.found.empty() ? nullptr : dlopen(search.found.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

void *open_library(const char *path, std::string &error) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) error = dlerror();
    return handle;
}

void *find_symbol(void *handle, const char *name) { return dlsym(handle, name); }

}  // namespace slotpool::os
