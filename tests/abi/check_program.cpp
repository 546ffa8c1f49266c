// The core's check alone, to be built with sanitizers: check_program GGML LIBRARY [LIE...]. Loads GGML, then for each lie,
// in a process of its own, checks LIBRARY, and prints a line "|lie|result|status"; the status is wait()'s.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "abi/ggml_api.h"
#include "os/library.h"

using namespace slotpool;

static std::string check(const char *ggml, const char *path) {
    std::string error;
    if (os::open_library(ggml, error) == nullptr) return error;
    void *library = os::open_library(path, error);
    abi::Api api;
    return library != nullptr && abi::load(library, api, error) && abi::verify(api, error) ? "fits" : error;
}

int main(int argc, char **argv) {
    for (int i = 3; i < argc; i++) {
        std::printf("|%s|", argv[i]);
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            setenv("SLOTPOOL_LIE", argv[i], 1);
            std::printf("%s", check(argv[1], argv[2]).c_str());
            std::exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        std::printf("|%d\n", status);
    }
    return 0;
}
