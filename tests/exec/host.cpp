// A program that knows llama.cpp and nothing of slotpool: decodes tokens one at a time and prints what comes out, bit by bit.
//
// usage: host -m MODEL --tokens 1,2,3 [-md MODEL [--draft-first]] [--contexts N] [--look all|init|often] [--end
// return|free|exit|_exit|abort|fork|thread]
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "llama.h"

namespace {

struct Loaded {
    llama_model *model;
    llama_context *context;
};

Loaded with_context(llama_model *model) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 128;
    params.n_threads = params.n_threads_batch = 1;
    return {model, llama_init_from_model(model, params)};
}

Loaded load(const std::string &path) {
    llama_model *model = llama_model_load_from_file(path.c_str(), llama_model_default_params());
    if (model == nullptr) std::exit(9);
    return with_context(model);
}

// FNV-1a over the bits of the logits
std::uint64_t decode(const Loaded &loaded, llama_token token) {
    if (llama_decode(loaded.context, llama_batch_get_one(&token, 1)) != 0) std::exit(8);
    const auto *bytes = reinterpret_cast<const unsigned char *>(llama_get_logits_ith(loaded.context, -1));
    const auto n_bytes = sizeof(float) * static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(loaded.model)));
    std::uint64_t hash = 1469598103934665603ULL;
    for (std::size_t i = 0; i < n_bytes; i++) hash = (hash ^ bytes[i]) * 1099511628211ULL;
    return hash;
}

// Programs look for backends in these ways: by llama.cpp's first call, which finds that some are linked in, by ggml's own, or again and again.
void look_for_backends(const std::string &how) {
    if (how != "all") llama_backend_init();
    if (how == "init") return;
    for (int i = 0; i < (how == "often" ? 3 : 1); i++) ggml_backend_load_all();
}

void end(const std::string &how, const std::vector<Loaded> &models) {
    if (how == "free") {
        for (const Loaded &loaded : models) llama_free(loaded.context);
        std::set<llama_model *> all;
        for (const Loaded &loaded : models) all.insert(loaded.model);
        for (llama_model *model : all) llama_model_free(model);
    }
    if (how == "fork") {
        if (fork() == 0) std::exit(0);
        wait(nullptr);
    }
    if (how == "thread") std::thread([] { std::exit(5); }).join();
    std::fflush(stdout);
    if (how == "exit") std::exit(3);
    if (how == "_exit") _exit(4);
    if (how == "abort") std::abort();
}

}  // namespace

int main(int argc, char **argv) {
    std::map<std::string, std::string> given = {{"--tokens", "1"}, {"--end", "return"}, {"--contexts", "1"}};
    for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    look_for_backends(given["--look"]);
    std::vector<Loaded> models;
    const bool draft_first = given["--draft"] == "first";
    if (draft_first) models.push_back(load(given["-md"]));
    models.push_back(load(given["-m"]));
    for (int i = 1; i < std::atoi(given["--contexts"].c_str()); i++) models.push_back(with_context(models.back().model));
    if (!draft_first && given.count("-md") > 0) models.push_back(load(given["-md"]));
    std::istringstream tokens(given["--tokens"]);
    for (std::string token; std::getline(tokens, token, ',');) {
        for (const Loaded &loaded : models) std::printf("%016llx\n", static_cast<unsigned long long>(decode(loaded, std::atoi(token.c_str()))));
    }
    end(given["--end"], models);
    return 0;
}
