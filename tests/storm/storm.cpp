// A program that makes a pool evict: decodes tokens that nobody chose, in one or more contexts at once, and prints every step's logits as a hash.
//
// usage: storm MODEL [--chaos LIBRARY] [--core LIBRARY] [--seed N] [--steps N] [--contexts N] [--renew STEPS] [--threads N] [--watch 1]
// Without a core it is plain llama.cpp, and says what a pooled run must say. --renew frees each context after so many steps and makes
// another; --watch reads the counters all the time. SLOTPOOL_PLAN names the plan, CHAOS_<NAME> turns knobs.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "llama.h"
#include "slotpool.h"

namespace {

constexpr int kSession = 1;  // the environment's plan opens the first
constexpr int kContextTokens = 128;
constexpr int kLongest = 24;

struct Options {
    std::string model, chaos, core;
    std::uint64_t seed;
    int n_steps, n_contexts, n_renew, n_threads;
    bool is_watched;
};

[[noreturn]] void fail(const std::string &what) {
    std::fprintf(stderr, "storm: %s\n", what.c_str());
    std::exit(9);
}

Options read_options(int argc, char **argv) {
    std::map<std::string, std::string> given = {{"--seed", "1"}, {"--steps", "100"}, {"--contexts", "1"}, {"--threads", "1"}};
    if (argc < 2) fail("expected a model, found none");
    for (int i = 2; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
    const auto number = [&](const char *name) { return std::atoi(given[name].c_str()); };
    return {argv[1],
            given["--chaos"],
            given["--core"],
            static_cast<std::uint64_t>(number("--seed")),
            number("--steps"),
            number("--contexts"),
            number("--renew"),
            number("--threads"),
            number("--watch") != 0};
}

// ---- what is decoded ----

// splitmix64
std::uint64_t scrambled(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// Mostly one token, sometimes two, now and then a prompt that no pool of few slots takes.
std::vector<llama_token> step_tokens(std::uint64_t seed, int step, int n_vocab) {
    const int n = step % 23 == 11 ? kLongest : step % 7 == 3 ? 2 : 1;
    std::vector<llama_token> tokens;
    for (int i = 0; i < n; i++) {
        const std::uint64_t drawn = scrambled(seed + scrambled(static_cast<std::uint64_t>(step) * 64 + static_cast<std::uint64_t>(i)));
        tokens.push_back(static_cast<llama_token>(drawn % static_cast<std::uint64_t>(n_vocab)));
    }
    return tokens;
}

// FNV-1a over the bits of the logits
std::uint64_t hash_of(const float *logits, int n_vocab) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(logits);
    std::uint64_t hash = 1469598103934665603ULL;
    for (std::size_t i = 0; i < sizeof(float) * static_cast<std::size_t>(n_vocab); i++) hash = (hash ^ bytes[i]) * 1099511628211ULL;
    return hash;
}

llama_context *new_context(llama_model *model, const Options &options) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = kContextTokens;
    params.n_threads = params.n_threads_batch = options.n_threads;
    llama_context *context = llama_init_from_model(model, params);
    if (context == nullptr) fail("expected a context, found none");
    return context;
}

// One hash per step. A context may be freed at any step, whatever is on its way into its slots.
void decode_all(llama_model *model, const Options &options, std::uint64_t seed, std::vector<std::uint64_t> &hashes) {
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_context *context = new_context(model, options);
    int n_past = 0;
    for (int step = 0; step < options.n_steps; step++) {
        std::vector<llama_token> tokens = step_tokens(seed, step, n_vocab);
        const auto n = static_cast<int>(tokens.size());
        if (options.n_renew > 0 && step > 0 && step % options.n_renew == 0) {
            llama_free(context);
            context = new_context(model, options);
            n_past = 0;
        } else if (n_past + n > kContextTokens) {
            llama_memory_clear(llama_get_memory(context), true);
            n_past = 0;
        }
        n_past += n;
        if (llama_decode(context, llama_batch_get_one(tokens.data(), n)) != 0)
            fail("expected llama_decode to return 0 at step " + std::to_string(step));
        hashes.push_back(hash_of(llama_get_logits_ith(context, -1), n_vocab));
    }
    llama_free(context);
}

// ---- the core and the devices, from outside ----

template <class Function>
Function *find(const std::string &library, const char *name) {
    void *handle = library.empty() ? nullptr : dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
    void *found = handle == nullptr ? nullptr : dlsym(handle, name);
    if (found == nullptr) fail("expected " + std::string(name) + " in " + library + ", found none");
    return reinterpret_cast<Function *>(found);
}

class Counters {
   public:
    explicit Counters(const std::string &core)
        : stats_(find<decltype(slotpool_session_stats)>(core, "slotpool_session_stats")),
          devices_(find<decltype(slotpool_session_devices)>(core, "slotpool_session_devices")),
          take_failure_(find<decltype(slotpool_session_take_failure)>(core, "slotpool_session_take_failure")) {}

    std::vector<slotpool_group_stats> read() const {
        std::vector<slotpool_group_stats> groups(static_cast<std::size_t>(stats_(kSession, nullptr, 0)));
        stats_(kSession, groups.data(), static_cast<int>(groups.size()));
        return groups;
    }

    void read_devices() const {
        slotpool_device_stats devices[4];
        devices_(kSession, devices, 4);
    }

    void print() const {
        std::map<std::string, std::uint64_t> sums;
        for (const slotpool_group_stats &group : read()) {
            sums["evicted"] += group.evicted;
            sums["admitted"] += group.admitted;
            sums["refused"] += group.refused;
            sums["in_flight"] += group.uploads_in_flight;
            for (const slotpool_phase_stats *phase : {&group.generation, &group.prompt}) {
                sums["hits"] += phase->hits;
                sums["misses"] += phase->misses;
                sums["rows_hit"] += phase->rows_hit;
                sums["rows_copy"] += phase->rows_copy;
                sums["rows_cpu"] += phase->rows_cpu;
            }
        }
        for (const auto &[name, sum] : sums) std::printf("count %s %llu\n", name.c_str(), static_cast<unsigned long long>(sum));
        char text[1024];
        take_failure_(kSession, text, sizeof text);
        std::printf("failure %s\n", text);
    }

   private:
    decltype(slotpool_session_stats) *stats_;
    decltype(slotpool_session_devices) *devices_;
    decltype(slotpool_session_take_failure) *take_failure_;
};

void print_hazards(const std::string &chaos) {
    char text[1024];
    find<std::size_t(char *, std::size_t)>(chaos, "chaos_first_hazard")(text, sizeof text);
    std::printf("hazard %s\n", text);
}

// ---- the storm ----

using Hashes = std::vector<std::vector<std::uint64_t>>;

Hashes run(llama_model *model, const Options &options) {
    Hashes hashes(static_cast<std::size_t>(options.n_contexts));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < hashes.size(); i++) {
        threads.emplace_back([&, i] { decode_all(model, options, scrambled(options.seed * 16 + i), hashes[i]); });
    }
    for (std::thread &thread : threads) thread.join();
    return hashes;
}

Hashes run_watched(llama_model *model, const Options &options, const Counters &counters) {
    std::atomic<bool> is_over{false};
    std::thread watcher([&] {
        while (!is_over) {
            counters.read();
            counters.read_devices();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    Hashes hashes = run(model, options);
    is_over = true;
    watcher.join();
    return hashes;
}

llama_model *load(const Options &options) {
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = options.chaos.empty() ? 0 : 99;
    params.use_extra_bufts = false;  // no weights in a layout of the CPU's own: plain and pooled compute with the same kernels
    llama_model *model = llama_model_load_from_file(options.model.c_str(), params);
    if (model == nullptr) fail("expected a model that loads, found none - at " + options.model);
    return model;
}

}  // namespace

int main(int argc, char **argv) {
    const Options options = read_options(argc, argv);
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    for (const std::string &library : {options.chaos, options.core}) {
        if (!library.empty() && ggml_backend_load(library.c_str()) == nullptr) fail("expected a backend that loads, found none - at " + library);
    }
    llama_model *model = load(options);
    const Hashes hashes = options.is_watched ? run_watched(model, options, Counters(options.core)) : run(model, options);
    llama_model_free(model);
    for (std::size_t context = 0; context < hashes.size(); context++) {
        for (std::uint64_t hash : hashes[context]) std::printf("logits %zu %016llx\n", context, static_cast<unsigned long long>(hash));
    }
    if (!options.core.empty()) Counters(options.core).print();
    if (!options.chaos.empty()) print_hazards(options.chaos);
    llama_backend_free();
    return 0;
}
