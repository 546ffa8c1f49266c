// The C interface over what is measured: bandwidths of memory, devices and links, and a device that is filled.
#include <cstring>

#include "door/text.h"
#include "os/library.h"
#include "probe/work.h"
#include "slotpool.h"

using namespace slotpool;

struct slotpool_probe {
    abi::Api api;
};

struct slotpool_probe_work {
    std::unique_ptr<probe::Work> work;
};

struct slotpool_probe_filled {
    std::shared_ptr<abi::Buffer> buffer;
};

namespace {

std::string text_of(const char *field, std::size_t size) { return {field, ::strnlen(field, size)}; }

probe::Weights weights_of(const slotpool_probe_spec &spec) {
    return {spec.type, text_of(spec.type_name, sizeof(spec.type_name)), spec.ne0, spec.ne1, spec.n_matrices, spec.n_used, spec.repacked != 0};
}

std::unique_ptr<probe::Work> made(const abi::Api &api, const slotpool_probe_spec &spec, std::string &error) {
    const int n_threads = spec.n_threads < 1 ? 1 : spec.n_threads;
    if (spec.kind == SLOTPOOL_PROBE_READ) return probe::read_memory(spec.bytes, n_threads, error);
    const std::string name = text_of(spec.device, sizeof(spec.device));
    abi::Device *device = api.dev_by_name(name.c_str());
    if (device == nullptr) {
        error = "Expected a device of ggml's, found none named " + name;
        return nullptr;
    }
    switch (spec.kind) {
        case SLOTPOOL_PROBE_MULTIPLY:
            return probe::multiply(api, device, weights_of(spec), n_threads, error);
        case SLOTPOOL_PROBE_NODES:
            return probe::start_nodes(api, device, n_threads, error);
        case SLOTPOOL_PROBE_COPY:
            return probe::copy_slabs(api, device, {spec.bytes, spec.slab_bytes, spec.to_host != 0, spec.pinned != 0}, error);
        default:
            error = "Expected a kind of work, found " + std::to_string(spec.kind);
            return nullptr;
    }
}

}  // namespace

slotpool_probe *slotpool_probe_new(const void *address, char *text, size_t size) {
    auto found = std::make_unique<slotpool_probe>();
    void *library = os::library_of(address);
    std::string error = library == nullptr ? "Expected ggml at the address given, found no library there" : "";
    if (library != nullptr && abi::load(library, found->api, error)) abi::verify(found->api, error);
    door::copy_text(error, text, size);
    return error.empty() ? found.release() : nullptr;
}

void slotpool_probe_free(slotpool_probe *probe) { delete probe; }

slotpool_probe_work *slotpool_probe_work_new(const slotpool_probe *probe, const slotpool_probe_spec *spec, char *text, size_t size) {
    std::string error;
    std::unique_ptr<probe::Work> work = made(probe->api, *spec, error);
    door::copy_text(error, text, size);
    return work ? new slotpool_probe_work{std::move(work)} : nullptr;
}

slotpool_probe_work *slotpool_probe_file_new(const char *path, uint64_t begin, uint64_t end, uint64_t slab_bytes, int depth, char *why_buffered,
                                             char *text, size_t size) {
    std::string why, error;
    std::unique_ptr<probe::Work> work = probe::read_file({path, begin, end, slab_bytes, depth}, why, error);
    door::copy_text(why, why_buffered, size);
    door::copy_text(error, text, size);
    return work ? new slotpool_probe_work{std::move(work)} : nullptr;
}

void slotpool_probe_work_free(slotpool_probe_work *work) { delete work; }

int slotpool_probe_repacks(const slotpool_probe *probe, const slotpool_probe_spec *spec) {
    abi::Device *device = probe->api.dev_by_name(text_of(spec->device, sizeof(spec->device)).c_str());
    return device != nullptr && probe::does_repack(probe->api, device, weights_of(*spec)) ? 1 : 0;
}

int slotpool_probe_repeat(slotpool_probe_work *work, uint64_t least_ns, uint64_t *amount, uint64_t *ns) {
    const probe::Sample sample = probe::repeat(*work->work, least_ns);
    *amount = sample.amount;
    *ns = sample.ns;
    return sample.amount != 0 ? 1 : 0;
}

slotpool_probe_filled *slotpool_probe_fill(const slotpool_probe *probe, const char *device_name, uint64_t n_bytes) {
    abi::Device *device = probe->api.dev_by_name(device_name);
    auto buffer = device == nullptr ? nullptr : probe::fill_device(probe->api, device, n_bytes);
    return buffer ? new slotpool_probe_filled{std::move(buffer)} : nullptr;
}

void slotpool_probe_drop(slotpool_probe_filled *filled) { delete filled; }

int slotpool_probe_properties(const slotpool_probe *probe, const char *device_name, int *has_host_memory) {
    abi::Device *device = probe->api.dev_by_name(device_name);
    if (device == nullptr) return 0;
    *has_host_memory = probe->api.dev_host_buffer_type(device) != nullptr ? 1 : 0;
    return 1;
}
