// How the check works without trusting anything: tables of function pointers are verified by handing ggml a fake object
// whose every entry is a recorder of ours, calling a public function on it, and seeing which entry ggml called. Fields
// of tensors are verified on tensors that ggml made. So a foreign layout is found before one of its pointers is used.
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "abi/ggml_api.h"

namespace slotpool::abi {
namespace {

constexpr int kRecorders = 24;
constexpr std::intptr_t kRecorderResult = 64;  // not null, and a sane alignment
std::array<int, 4> g_called{};
int g_n_called = 0;

template <int I>
std::intptr_t record() {
    if (g_n_called < static_cast<int>(g_called.size())) g_called[static_cast<std::size_t>(g_n_called++)] = I;
    return kRecorderResult;
}

using Recorder = std::intptr_t (*)();

template <std::size_t... I>
constexpr std::array<Recorder, sizeof...(I)> make_recorders(std::index_sequence<I...>) {
    return {record<static_cast<int>(I)>...};
}

const std::array<Recorder, kRecorders> g_recorders = make_recorders(std::make_index_sequence<kRecorders>());

// An object that begins (after `lead` pointers) with a table of recorders; `tail` marks the fields that follow it.
struct Fake {
    std::array<void *, kRecorders + 4> words{};
    Fake(int lead, int table, int tails) {
        for (int i = 0; i < table; i++) {
            void *&word = words[static_cast<std::size_t>(lead + i)];
            std::memcpy(&word, &g_recorders[static_cast<std::size_t>(i)], sizeof(word));
        }
        for (int i = 0; i < tails; i++) words[static_cast<std::size_t>(lead + table + i)] = &words[static_cast<std::size_t>(lead + table + i)];
    }
    template <class T>
    T *as() {
        return reinterpret_cast<T *>(words.data());
    }
};

class Verifier {
   public:
    Verifier(const Api &api, std::string &error) : api_(api), error_(error) {}

    bool run() { return api_number() && tensor_fields() && device_table() && buffer_tables() && backend_table() && registry_table() && cpu_device(); }

   private:
    bool fail(const char *what, const std::string &expected, const std::string &found) {
        error_ = std::string("Expected ggml's ") + what + " to be " + expected + ", found " + found;
        return false;
    }

    bool check(bool ok, const char *what, const char *expected, const char *found) { return ok || fail(what, expected, found); }

    template <class Call>
    bool calls(const char *table, const char *entry, int index, Call call) {
        g_n_called = 0;
        call();
        for (int i = 0; i < g_n_called; i++) {
            if (g_called[static_cast<std::size_t>(i)] == index) return true;
        }
        const std::string found = g_n_called == 0 ? "no entry of the table" : "entry " + std::to_string(g_called[0]);
        return fail((std::string(table) + " table entry " + entry).c_str(), "entry " + std::to_string(index), found);
    }

    bool api_number() {
        if (api_.reg_count() == 0) return fail("registry", "at least one backend", "none");
        const int found = api_.reg_get(0)->api_version;
        return found == kApiVersion || fail("backend API number", std::to_string(kApiVersion), std::to_string(found));
    }

    bool tensor_fields() {
        if (api_.tensor_overhead() != kObjectBytes + sizeof(Tensor)) {
            return fail("tensor size", std::to_string(kObjectBytes + sizeof(Tensor)), std::to_string(api_.tensor_overhead()));
        }
        Context *ctx = api_.init({16 * api_.tensor_overhead(), nullptr, true});
        if (ctx == nullptr) return fail("context", "created", "null");
        const bool ok = plain_tensor(ctx) && view_tensor(ctx) && op_tensor(ctx) && allocated_tensor(ctx);
        api_.free(ctx);
        return ok;
    }

    bool plain_tensor(Context *ctx) {
        Tensor *t = api_.new_tensor_4d(ctx, kTypeF32, 3, 5, 7, 11);
        const std::int64_t ne[kMaxDims] = {3, 5, 7, 11};
        const std::size_t nb[kMaxDims] = {4, 12, 60, 420};
        api_.set_name(t, "slotpool.abi");
        api_.set_input(t);
        return check(t->type == kTypeF32, "tensor field type", "F32", "another value") &&
               check(std::memcmp(t->ne, ne, sizeof(ne)) == 0, "tensor field ne", "3,5,7,11", "other values at its offset") &&
               check(std::memcmp(t->nb, nb, sizeof(nb)) == 0, "tensor field nb", "4,12,60,420", "other values at its offset") &&
               check(t->buffer == nullptr && t->data == nullptr && t->view_src == nullptr, "tensor fields buffer, data, view_src", "null",
                     "other values at their offsets") &&
               check(std::strncmp(t->name, "slotpool.abi", kNameBytes) == 0, "tensor field name", "slotpool.abi", "other bytes at its offset") &&
               check((t->flags & 1) != 0, "tensor field flags", "the input flag", "other bits at its offset");
    }

    bool view_tensor(Context *ctx) {
        Tensor *base = api_.new_tensor_4d(ctx, kTypeF32, 64, 1, 1, 1);
        Tensor *view = api_.view_1d(ctx, base, 8, 32);
        return check(view->view_src == base, "tensor field view_src", "the viewed tensor", "another value at its offset") &&
               check(view->view_offs == 32, "tensor field view_offs", "32", "another value at its offset");
    }

    bool op_tensor(Context *ctx) {
        Tensor *as = api_.new_tensor_4d(ctx, kTypeF32, 4, 6, 3, 1);
        Tensor *b = api_.new_tensor_4d(ctx, kTypeF32, 4, 2, 5, 1);
        Tensor *ids = api_.new_tensor_4d(ctx, kTypeI32, 2, 5, 1, 1);
        Tensor *out = api_.mul_mat_id(ctx, as, b, ids);
        if (!check(out->src[0] == as && out->src[1] == b && out->src[2] == ids, "tensor field src", "the operands", "other values at its offset")) {
            return false;
        }
        const char *name = api_.op_name(out->op);
        if (name == nullptr || std::strcmp(name, "MUL_MAT_ID") != 0) {
            return fail("op table entry of an expert matmul", "MUL_MAT_ID", name == nullptr ? "null" : name);
        }
        float half = 0.0F;
        std::memcpy(&half, api_.scale(ctx, b, 0.5F)->op_params, sizeof(half));
        return check(half == 0.5F, "tensor field op_params", "the scale 0.5", "another value at its offset");
    }

    bool allocated_tensor(Context *ctx) {
        Tensor *t = api_.new_tensor_4d(ctx, kTypeF32, 8, 1, 1, 1);
        Fake buft(0, 0, 4);
        BufferTable table{};
        table.get_base = [](Buffer *buffer) { return static_cast<void *>(buffer->context); };
        alignas(64) std::array<char, 64> memory{};
        Buffer *buffer = api_.buffer_init(buft.as<BufferType>(), table, memory.data(), memory.size());
        bool ok = check(buffer->context == memory.data() && buffer->size == memory.size() && buffer->buft == buft.as<BufferType>(),
                        "buffer fields buft, context, size", "the values given", "other values at their offsets");
        if (ok) {
            api_.tensor_alloc(buffer, t, memory.data());
            ok = check(t->buffer == buffer && t->data == memory.data(), "tensor fields buffer and data", "the values given",
                       "other values at their offsets");
            api_.buffer_set_usage(buffer, kUsageWeights);
            ok = ok && check(buffer->usage == kUsageWeights, "buffer field usage", "weights", "another value at its offset");
        }
        api_.buffer_free(buffer);
        return ok;
    }

    bool device_table() {
        Fake fake(0, static_cast<int>(sizeof(DeviceTable) / sizeof(void *)), 2);
        auto *dev = fake.as<Device>();
        DeviceProps props{};
        std::size_t free_bytes = 0;
        std::size_t total_bytes = 0;
        const char *table = "device";
        return calls(table, "get_name", 0, [&] { api_.dev_name(dev); }) && calls(table, "get_description", 1, [&] { api_.dev_description(dev); }) &&
               calls(table, "get_memory", 2, [&] { api_.dev_memory(dev, &free_bytes, &total_bytes); }) &&
               calls(table, "get_type", 3, [&] { api_.dev_type(dev); }) && calls(table, "get_props", 4, [&] { api_.dev_props(dev, &props); }) &&
               calls(table, "init_backend", 5, [&] { api_.dev_init(dev, nullptr); }) &&
               calls(table, "get_buffer_type", 6, [&] { api_.dev_buffer_type(dev); }) &&
               calls(table, "buffer_from_host_ptr", 8, [&] { api_.dev_buffer_from_host_ptr(dev, nullptr, 0, 0); }) &&
               calls(table, "supports_op", 9, [&] { api_.dev_supports_op(dev, nullptr); }) &&
               calls(table, "supports_buft", 10, [&] { api_.dev_supports_buft(dev, nullptr); }) &&
               check(api_.dev_reg(dev) == dev->reg, "device field reg", "the value given", "another value at its offset");
    }

    bool buffer_tables() {
        Fake type(0, static_cast<int>(sizeof(BufferTypeTable) / sizeof(void *)), 2);
        auto *buft = type.as<BufferType>();
        return calls("buffer type", "get_name", 0, [&] { api_.buft_name(buft); }) &&
               calls("buffer type", "alloc_buffer", 1, [&] { api_.buft_alloc(buft, 1); }) &&
               calls("buffer type", "get_alignment", 2, [&] { api_.buft_alignment(buft); }) &&
               calls("buffer type", "is_host", 5, [&] { api_.buft_is_host(buft); }) &&
               check(api_.buft_device(buft) == buft->device, "buffer type field device", "the value given", "another value at its offset") &&
               buffer_table(buft);
    }

    bool buffer_table(BufferType *buft) {
        Fake table(0, static_cast<int>(sizeof(BufferTable) / sizeof(void *)), 0);
        Buffer *buffer = api_.buffer_init(buft, *table.as<BufferTable>(), nullptr, 64);
        Tensor t{};
        t.buffer = buffer;
        t.data = &t;
        t.type = kTypeF32;
        for (int i = 0; i < kMaxDims; i++) t.ne[i] = 1, t.nb[i] = 4;
        float value = 0.0F;
        return calls("buffer", "get_base", 1, [&] { api_.buffer_base(buffer); }) &&
               calls("buffer", "set_tensor", 4, [&] { api_.tensor_set(&t, &value, 0, sizeof(value)); }) &&
               calls("buffer", "get_tensor", 5, [&] { api_.tensor_get(&t, &value, 0, sizeof(value)); }) &&
               calls("buffer", "clear", 9, [&] { api_.buffer_clear(buffer, 0); }) &&
               calls("buffer", "free_buffer", 0, [&] { api_.buffer_free(buffer); });
    }

    bool backend_table() {
        Fake fake(1, static_cast<int>(sizeof(BackendTable) / sizeof(void *)), 2);
        auto *backend = fake.as<Backend>();
        return calls("backend", "get_name", 0, [&] { api_.backend_name(backend); }) &&
               calls("backend", "synchronize", 7, [&] { api_.synchronize(backend); }) &&
               calls("backend", "graph_compute", 12, [&] { api_.graph_compute(backend, nullptr); }) &&
               calls("backend", "free", 1, [&] { api_.backend_free(backend); }) &&
               check(api_.backend_device(backend) == backend->device, "backend field device", "the value given", "another value at its offset");
    }

    bool registry_table() {
        Fake fake(1, static_cast<int>(sizeof(RegistryTable) / sizeof(void *)), 1);
        auto *reg = fake.as<Registry>();
        return calls("registry", "get_name", 0, [&] { api_.reg_name(reg); }) &&
               calls("registry", "get_device_count", 1, [&] { api_.reg_dev_count(reg); }) &&
               calls("registry", "get_device", 2, [&] { api_.reg_dev_get(reg, 0); }) &&
               calls("registry", "get_proc_address", 3, [&] { api_.reg_proc_address(reg, ""); });
    }

    bool cpu_device() {
        Device *cpu = api_.dev_by_type(DeviceType::cpu);
        if (cpu == nullptr) return fail("device list", "a CPU device", "none");
        return check(cpu->iface.get_name(cpu) == api_.dev_name(cpu), "CPU device table", "the functions behind the public ones", "another name") &&
               check(cpu->iface.get_type(cpu) == api_.dev_type(cpu), "CPU device table", "the functions behind the public ones", "another type") &&
               check(cpu->iface.get_buffer_type(cpu) == api_.dev_buffer_type(cpu), "CPU device table", "the functions behind the public ones",
                     "another buffer type");
    }

    const Api &api_;
    std::string &error_;
};

}  // namespace

bool verify(const Api &api, std::string &error) { return Verifier(api, error).run(); }

}  // namespace slotpool::abi
