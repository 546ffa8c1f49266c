// Preloaded into a program: gives its ggml the chaos devices before it looks for anything, and writes at exit what they counted.
//
// CHAOS_LIBRARY is the chaos device, CHAOS_COUNTS the file for the counters, one "DEVICE NAME VALUE" a line, or nothing.
// Does nothing in a process without a ggml.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

template <class Fn>
Fn function(void *where, const char *name) {
    return reinterpret_cast<Fn>(dlsym(where, name));
}

void *the_chaos = nullptr;

// after the constructors of the libraries that the program is linked with, and before its main
__attribute__((constructor)) void load() {
    const auto load_backend = function<void *(*)(const char *)>(RTLD_DEFAULT, "ggml_backend_load");
    const char *path = std::getenv("CHAOS_LIBRARY");
    if (load_backend == nullptr || path == nullptr) return;
    if (load_backend(path) == nullptr) std::abort();
    the_chaos = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
}

__attribute__((destructor)) void write_counts() {
    const char *path = std::getenv("CHAOS_COUNTS");
    std::FILE *file = path == nullptr || the_chaos == nullptr ? nullptr : std::fopen(path, "w");
    if (file == nullptr) return;
    const auto name = function<const char *(*)(std::size_t)>(the_chaos, "chaos_counter_name");
    std::vector<std::uint64_t> values(function<std::size_t (*)()>(the_chaos, "chaos_n_counters")());
    const auto get = function<double (*)(int, const char *)>(the_chaos, "chaos_get");
    for (int device = 0; device < static_cast<int>(get(0, "devices")); device++) {
        function<int (*)(int, std::uint64_t *, std::size_t)>(the_chaos, "chaos_counters")(device, values.data(), values.size());
        for (std::size_t i = 0; i < values.size(); i++)
            std::fprintf(file, "%d %s %llu\n", device, name(i), static_cast<unsigned long long>(values[i]));
    }
    std::fclose(file);
}

}  // namespace
