// ggml_backend_init(): checks the ggml that called us, then hands out the registry. On any doubt the pool stays out.
#include "backend/registry.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <vector>

#include "backend/pool_device.h"
#include "os/library.h"
#include "plan/plan.h"
#include "store/session.h"
#include "store/store_buffer.h"

namespace slotpool {
namespace {

struct State {
    abi::Api api;
    bool is_registered = false;
    int op_mul_mat_id = -1;
    std::mutex mutex;
    std::string last_error;
};

// never destroyed: a program may free its models after our statics would be gone
State &state() {
    static State *const the_state = new State;
    return *the_state;
}

// ---- registry ----

struct Devices {
    std::vector<abi::Device *> all;
};

const char *get_name(abi::Registry *) { return "slotpool"; }

std::size_t get_device_count(abi::Registry *reg) { return static_cast<Devices *>(reg->context)->all.size(); }

abi::Device *get_device(abi::Registry *reg, std::size_t index) { return static_cast<Devices *>(reg->context)->all[index]; }

void *get_proc_address(abi::Registry *, const char *name) {
    const std::string wanted = name;
    if (wanted == "ggml_backend_set_n_threads") return reinterpret_cast<void *>(set_n_threads);
    if (wanted == "ggml_backend_set_abort_callback") return reinterpret_cast<void *>(set_abort_callback);
    return nullptr;
}

std::vector<std::string> pooled_devices(const Plan &plan) {
    std::vector<std::string> names;
    const auto is_on_cpu = [](const PlannedGroup &group) { return group.device == "CPU"; };
    if (std::any_of(plan.groups.begin(), plan.groups.end(), is_on_cpu)) names.emplace_back("CPU");
    for (const PlannedDevice &device : plan.devices) {
        if (device.slots > 0) names.push_back(device.name);
    }
    return names;
}

// A registry with the pool devices of the plan that are not there yet. Lives as long as the process, as ggml expects.
abi::Registry *new_registry(const Plan &plan) {
    auto *devices = new Devices;
    auto *reg = new abi::Registry{abi::kApiVersion, {get_name, get_device_count, get_device, get_proc_address}, devices};
    for (const std::string &name : pooled_devices(plan)) {
        if (!PoolDevice::is_there(name)) devices->all.push_back(PoolDevice::over(name, reg).device());
    }
    return reg;
}

// The pools before the store, and both before the CPU: the scheduler asks in this order.
abi::Registry *first_registry(const Plan &plan) {
    abi::Registry *reg = new_registry(plan);
    static_cast<Devices *>(reg->context)->all.push_back(store_device(reg));
    return reg;
}

// ---- checks before anything is registered ----

// A second ggml in the process has a second registry: what registers there is never asked by libllama.
bool is_llamas_ggml(const abi::Api &api, std::string &error) {
    void *llama = os::loaded_library("libllama.so");
    if (llama == nullptr) return true;  // a program that has llama.cpp inside itself has one ggml
    void *used = os::find_symbol(llama, "ggml_backend_dev_count");
    if (used == nullptr || used == reinterpret_cast<void *>(api.dev_count)) return true;
    error = "Expected the ggml that libllama uses (" + os::path_of(used) + "), found " + os::path_of(reinterpret_cast<void *>(api.dev_count)) +
            ": two copies of ggml in one process";
    return false;
}

int find_mul_mat_id(const abi::Api &api) {
    abi::Context *ctx = api.init({8 * api.tensor_overhead(), nullptr, true});
    abi::Tensor *as = api.new_tensor_4d(ctx, abi::kTypeF32, 1, 1, 1, 1);
    abi::Tensor *ids = api.new_tensor_4d(ctx, abi::kTypeI32, 1, 1, 1, 1);
    const int op = api.mul_mat_id(ctx, as, as, ids)->op;
    api.free(ctx);
    return op;
}

bool attach(const void *caller, std::string &error) {
    abi::Api api;
    void *ggml = os::library_of(caller);
    if (ggml == nullptr || !abi::load(ggml, api, error) || !abi::verify(api, error) || !is_llamas_ggml(api, error)) {
        if (error.empty()) error = "Expected to be loaded by ggml, found a caller in no library";
        return false;
    }
    state().api = api;
    state().op_mul_mat_id = find_mul_mat_id(api);
    return true;
}

// SLOTPOOL_PLAN names the plan of a program that knows nothing of us: its session stays open for loading.
bool open_environment_plan(std::string &error) {
    const char *path = std::getenv("SLOTPOOL_PLAN");
    if (path == nullptr) {
        error = "Expected a plan (SLOTPOOL_PLAN names its file), found none. Nothing is pooled, nothing is registered";
        return false;
    }
    std::ifstream file(path, std::ios::binary);
    std::string text(kMaxPlanBytes + 1, '\0');  // one byte more than allowed: parse_plan refuses it, however large the file
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    Plan plan;
    if (!file.eof() && text.empty()) error = std::string("Expected a readable plan file, found none - at ") + path;
    if (!error.empty() || !parse_plan(text.data(), text.size(), plan, error)) return false;
    if (plan.groups.empty()) {
        error = std::string("Expected a plan with at least one group, found none - at ") + path;
        return false;
    }
    return sessions::open(std::move(plan), error, true) != 0;
}

abi::Registry *refuse(const std::string &error, bool say_so) {
    set_last_error(error);
    if (say_so) std::fprintf(stderr, "slotpool: off: %s\n", error.c_str());
    return nullptr;
}

}  // namespace

const abi::Api &registry_api() { return state().api; }

bool is_registered() { return state().is_registered; }

int op_mul_mat_id() { return state().op_mul_mat_id; }

void register_missing_devices(const Plan &plan) {
    if (!is_registered()) return;  // ggml_backend_init() is still to come
    const std::vector<std::string> names = pooled_devices(plan);
    if (std::all_of(names.begin(), names.end(), PoolDevice::is_there)) return;
    registry_api().register_registry(new_registry(plan));
}

abi::BufferType *store_buffer_type() {
    static abi::BufferType type = {store_buffer_type_table(), store_device(nullptr), nullptr};
    return &type;
}

abi::BufferType *disk_buffer_type() {
    static abi::BufferType type = {disk_buffer_type_table(), store_device(nullptr), nullptr};
    return &type;
}

bool is_store_type(const abi::BufferType *type) { return type == store_buffer_type() || type == disk_buffer_type(); }

void set_last_error(const std::string &error) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().last_error = error;
}

std::string last_error() {
    const std::lock_guard<std::mutex> lock(state().mutex);
    return state().last_error;
}

}  // namespace slotpool

extern "C" __attribute__((visibility("default"))) slotpool::abi::Registry *ggml_backend_init() {
    using namespace slotpool;
    std::string error;
    const bool by_library = sessions::loading() != nullptr;  // our own Python reads last_error(); another program gets a line
    try {
        if (!attach(__builtin_return_address(0), error)) return refuse(error, !by_library);
        if (!by_library && !open_environment_plan(error)) return refuse(error, true);
        PoolDevice::forget_all();
        abi::Registry *reg = first_registry(sessions::loading()->plan);
        state().is_registered = true;
        return reg;
    } catch (const std::exception &unexpected) {  // ggml is C: no exception may leave through it
        return refuse(unexpected.what(), true);
    }
}
