// ggml_backend_init(): takes the environment's knobs and hands out the devices.
#include <cstdio>
#include <exception>

#include "chaos.h"
#include "device.h"
#include "os/library.h"
#include "slow_cpu.h"

namespace chaos {
namespace {

struct State {
    abi::Api api;
    abi::Device *cpu = nullptr;
    std::atomic<bool> is_registered{false};
};

State &state() {
    static State *const the_state = new State;
    return *the_state;
}

const char *get_name(abi::Registry *) { return "CHAOS"; }
std::size_t get_device_count(abi::Registry *) {
    static const int n = n_devices();
    return static_cast<std::size_t>(n);
}
abi::Device *get_device(abi::Registry *, std::size_t index) { return &device(static_cast<int>(index)).ggml; }
void *get_proc_address(abi::Registry *, const char *) { return nullptr; }

abi::Registry *registry() {
    static abi::Registry reg = {abi::kApiVersion, {get_name, get_device_count, get_device, get_proc_address}, nullptr};
    return &reg;
}

bool attach(const void *caller, std::string &error) {
    void *ggml = slotpool::os::library_of(caller);
    if (ggml == nullptr || !abi::load(ggml, state().api, error) || !abi::verify(state().api, error)) return false;
    state().cpu = state().api.dev_by_type(abi::DeviceType::cpu);
    return true;
}

}  // namespace

const abi::Api &api() { return state().api; }

abi::Device *cpu_device() { return state().cpu; }

}  // namespace chaos

using namespace chaos;

CHAOS_API int chaos_is_registered(void) { return state().is_registered ? 1 : 0; }

extern "C" CHAOS_API abi::Registry *ggml_backend_init() {
    if (state().is_registered) return registry();
    std::string error = environment_error();
    try {
        if (!error.empty() || !attach(__builtin_return_address(0), error)) {
            set_error(nullptr, error.empty() ? "Expected to be loaded by ggml, found another caller" : error);
            std::fprintf(stderr, "chaos: off: %s\n", last_error().c_str());
            return nullptr;
        }
    } catch (const std::exception &) {  // ggml is C: no exception may leave through it
        return nullptr;
    }
    for (int i = 0; i < kMaxDevices; i++) {
        make_ggml_device(device(i), registry());
        make_buffer_type(device(i));
    }
    if (device(0).knobs.is_on(k_cpu_ns_per_byte)) slow_cpu_down();
    state().is_registered = true;
    return registry();
}
