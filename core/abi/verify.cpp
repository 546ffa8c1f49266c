// How the check works without trusting anything: tables of function pointers are verified by handing ggml a fake object
// whose every word is a recorder of ours, calling a public function on it, and seeing which word ggml called. Fields of
// tensors are verified on tensors that ggml made. So a foreign layout is found before one of its pointers is used, and
// what was made by a ggml that failed is left as it is: to free it would be to trust it.
#include <cstring>
#include <vector>

#include "abi/contexts.h"

namespace slotpool::abi {
namespace {

constexpr int kMaxKnownOp = 64;         // an expert matmul's number is far below: a larger one is never looked up
constexpr std::int32_t kFlagInput = 1;  // set by ggml_set_input

class Verifier : Contexts {
   public:
    using Contexts::Contexts;

    bool run() {
        return api_number() && names() && init_words() && tensors() && device_table() && buffer_type_table() && buffer_table() && backend_table() &&
               registry_table() && cpu_device();
    }

   private:
    bool api_number() {
        if (!holds("list of backends", "at least one", api_.reg_count() > 0, "none")) return false;
        const Registry *first = api_.reg_get(0);
        return made("ggml_backend_reg_get", first) && number("backend API number", kApiVersion, first->api_version);
    }

    bool names() {
        return equal("type table entry 0", "f32", printable(api_.type_name(kTypeF32), kNameBytes)) &&
               equal("type table entry 26", "i32", printable(api_.type_name(kTypeI32), kNameBytes)) &&
               number("tensor size", kObjectBytes + sizeof(Tensor), api_.tensor_overhead());
    }

    // ---- tensors and graphs ----

    bool tensors() {
        return with_context([&](Context *ctx) { return plain_tensor(ctx) && view_tensor(ctx) && matmul_tensor(ctx) && scale_tensor(ctx); }) &&
               with_context([&](Context *ctx) { return graphs(ctx); });
    }

    bool plain_tensor(Context *ctx) {
        Tensor *t = f32(ctx, 3, 5, 7, 11);
        const std::string name(kNameBytes - 1, 'n');
        api_.set_name(t, (name + "too long").c_str());
        api_.set_input(t);
        return number("tensor field type", kTypeF32, t->type) && pointer("tensor field buffer", "null", nullptr, t->buffer) &&
               equal("tensor field ne", "3,5,7,11", listed(t->ne, kMaxDims)) && equal("tensor field nb", "4,12,60,420", listed(t->nb, kMaxDims)) &&
               number("tensor field op", 0, t->op) && number("tensor field flags", kFlagInput, t->flags) && operands(t, {}) &&
               pointer("tensor field view_src", "null", nullptr, t->view_src) && number("tensor field view_offs", std::size_t{0}, t->view_offs) &&
               pointer("tensor field data", "null", nullptr, t->data) &&
               holds("tensor field name", "the 63 letters given", printable(t->name, kNameBytes) == name, printable(t->name, 16).c_str()) &&
               pointer("tensor field extra", "null", nullptr, t->extra) && number("bytes of a tensor", std::size_t{4620}, api_.nbytes(t));
    }

    bool operands(const Tensor *t, const std::vector<const Tensor *> &expected) {
        std::array<const Tensor *, kMaxSrc> all{};
        std::copy(expected.begin(), expected.end(), all.begin());
        return std::equal(all.begin(), all.end(), t->src) || holds("tensor field src", "the operands, then null", false, "other values");
    }

    bool view_tensor(Context *ctx) {
        Tensor *base = f32(ctx, 64);
        const Tensor *view = api_.view_1d(ctx, base, 8, 32);
        return made("ggml_view_1d", view) && pointer("tensor field view_src", "the viewed tensor", base, view->view_src) &&
               number("tensor field view_offs", std::size_t{32}, view->view_offs);
    }

    bool matmul_tensor(Context *ctx) {
        Tensor *as = f32(ctx, 4, 6, 3);
        Tensor *b = f32(ctx, 4, 2, 5);
        Tensor *ids = api_.new_tensor_4d(ctx, kTypeI32, 2, 5, 1, 1);
        const Tensor *out = api_.mul_mat_id(ctx, as, b, ids);
        if (!made("ggml_mul_mat_id", out) || !operands(out, {as, b, ids})) return false;
        const bool has_op = out->op > 0 && out->op < kMaxKnownOp;
        return holds("tensor field op", "the number of an expert matmul", has_op, std::to_string(out->op).c_str()) &&
               equal("op table entry of an expert matmul", "MUL_MAT_ID", printable(api_.op_name(out->op), kNameBytes));
    }

    bool scale_tensor(Context *ctx) {
        const Tensor *out = api_.scale(ctx, f32(ctx, 4), 0.5F);
        const std::int32_t bits[2] = {0x3F000000, 0};  // of 0.5, and of no bias
        return made("ggml_scale", out) && equal("tensor field op_params", listed(bits, 2), listed(out->op_params, 2));
    }

    // A graph lies in its context, between the tensors made before and after it.
    bool graphs(Context *ctx) {
        Tensor *a = f32(ctx, 1);
        Graph *graph = api_.new_graph(ctx, 2, false);
        Tensor *b = f32(ctx, 1);
        if (!made("ggml_new_graph_custom", graph)) return false;
        const auto n_bytes = static_cast<std::size_t>(reinterpret_cast<char *>(b) - reinterpret_cast<char *>(a)) - api_.tensor_overhead();
        if (!number("graph size", n_bytes, api_.graph_overhead(2, false)) || !number("nodes of a new graph", 0, api_.graph_n_nodes(graph)))
            return false;
        api_.graph_add_node(graph, a);
        api_.graph_add_node(graph, b);
        if (!number("nodes of a graph of two", 2, api_.graph_n_nodes(graph)) || !pointer("graph node 0", "the first", a, api_.graph_node(graph, 0)) ||
            !pointer("graph node 1", "the second", b, api_.graph_node(graph, 1))) {
            return false;
        }
        api_.graph_clear(graph);
        return number("nodes of a cleared graph", 0, api_.graph_n_nodes(graph));
    }

    // ---- tables ----

    bool device_table() {
        Fake fake;
        Fake type;
        auto *dev = fake.as<Device>();
        const DeviceTable &table = dev->iface;
        std::size_t bytes = 0;
        std::array<unsigned char, 512> props;
        props.fill(0xA5);
        auto *room = reinterpret_cast<DeviceProps *>(props.data());
        return calls("device table entry get_name", fake, table.get_name, [&] { api_.dev_name(dev); }) &&
               calls("device table entry get_description", fake, table.get_description, [&] { api_.dev_description(dev); }) &&
               calls("device table entry get_memory", fake, table.get_memory, [&] { api_.dev_memory(dev, &bytes, &bytes); }) &&
               calls("device table entry get_type", fake, table.get_type, [&] { api_.dev_type(dev); }) &&
               calls("device table entry get_props", fake, table.get_props, [&] { api_.dev_props(dev, room); }) &&
               number("size of device properties", sizeof(DeviceProps), cleared(props)) &&
               calls("device table entry init_backend", fake, table.init_backend, [&] { api_.dev_init(dev, nullptr); }) &&
               calls("device table entry get_buffer_type", fake, table.get_buffer_type, [&] { api_.dev_buffer_type(dev); }) &&
               calls("device table entry buffer_from_host_ptr", fake, table.buffer_from_host_ptr,
                     [&] { api_.dev_buffer_from_host_ptr(dev, props.data(), props.size(), props.size()); }) &&
               with_context([&](Context *ctx) {
                   return calls("device table entry supports_op", fake, table.supports_op, [&] { api_.dev_supports_op(dev, f32(ctx, 1)); });
               }) &&
               calls("device table entry supports_buft", fake, table.supports_buft, [&] { api_.dev_supports_buft(dev, type.as<BufferType>()); }) &&
               pointer("device field reg", "the word after the table", dev->reg, api_.dev_reg(dev));
    }

    // ggml clears the properties before it asks the device for them: that many bytes they are.
    static std::size_t cleared(const std::array<unsigned char, 512> &bytes) {
        const auto *end = std::find_if(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte != 0; });
        return static_cast<std::size_t>(end - bytes.begin());
    }

    bool buffer_type_table() {
        Fake fake;
        auto *type = fake.as<BufferType>();
        const BufferTypeTable &table = type->iface;
        return calls("buffer type table entry get_name", fake, table.get_name, [&] { api_.buft_name(type); }) &&
               calls("buffer type table entry alloc_buffer", fake, table.alloc_buffer, [&] { api_.buft_alloc(type, 1); }) &&
               calls("buffer type table entry get_alignment", fake, table.get_alignment, [&] { api_.buft_alignment(type); }) &&
               calls("buffer type table entry is_host", fake, table.is_host, [&] { api_.buft_is_host(type); }) &&
               pointer("buffer type field device", "the word after the table", type->device, api_.buft_device(type));
    }

    // The table is given by value: where the fields after it lie in what ggml made of it tells its size.
    bool buffer_table() {
        Fake fake;
        Fake fake_type;
        auto *type = fake_type.as<BufferType>();
        type->iface.get_max_size = nullptr;  // as in our own buffer type
        type->iface.get_alloc_size = nullptr;
        alignas(64) std::array<char, 64> memory{};
        const BufferTable table = *fake.as<BufferTable>();
        Buffer *buffer = api_.buffer_init(type, table, memory.data(), memory.size());
        if (!made("ggml_backend_buffer_init", buffer) || !pointer("buffer field buft", "the type given", type, buffer->buft) ||
            !pointer("buffer field context", "the context given", memory.data(), buffer->context) ||
            !number("buffer field size", memory.size(), buffer->size) || !number("buffer field usage", 0, buffer->usage)) {
            return false;
        }
        api_.buffer_set_usage(buffer, kUsageWeights);
        return number("buffer field usage", kUsageWeights, buffer->usage) && number("buffer usage", kUsageWeights, api_.buffer_usage(buffer)) &&
               number("buffer size", memory.size(), api_.buffer_size(buffer)) &&
               pointer("type of a buffer", "the type given", type, api_.buffer_type(buffer)) &&
               calls("buffer table entry get_base", fake, table.get_base, [&] { api_.buffer_base(buffer); }) &&
               calls("buffer table entry clear", fake, table.clear, [&] { api_.buffer_clear(buffer, 0); }) &&
               with_context([&](Context *ctx) { return tensor_in_buffer(ctx, fake, buffer); }) &&
               calls("buffer table entry free_buffer", fake, table.free_buffer, [&] { api_.buffer_free(buffer); });
    }

    bool tensor_in_buffer(Context *ctx, const Fake &fake, Buffer *buffer) {
        Tensor *t = f32(ctx, 1);
        float value = 0.0F;
        const BufferTable &table = buffer->iface;
        buffer->iface.get_base = [](Buffer *given) { return given->context; };  // ggml compares a tensor's place with it
        return calls("buffer table entry init_tensor", fake, table.init_tensor, [&] { api_.tensor_alloc(buffer, t, buffer->context); }) &&
               pointer("tensor field buffer", "the buffer given", buffer, t->buffer) &&
               pointer("tensor field data", "the address given", buffer->context, t->data) &&
               calls("buffer table entry set_tensor", fake, table.set_tensor, [&] { api_.tensor_set(t, &value, 0, sizeof(value)); }) &&
               calls("buffer table entry get_tensor", fake, table.get_tensor, [&] { api_.tensor_get(t, &value, 0, sizeof(value)); });
    }

    bool backend_table() {
        Fake fake;
        auto *backend = fake.as<Backend>();
        const BackendTable &table = backend->iface;
        return calls("backend table entry get_name", fake, table.get_name, [&] { api_.backend_name(backend); }) &&
               calls("backend table entry synchronize", fake, table.synchronize, [&] { api_.synchronize(backend); }) &&
               with_context([&](Context *ctx) {
                   Graph *graph = api_.new_graph(ctx, 1, false);
                   return calls("backend table entry graph_compute", fake, table.graph_compute, [&] { api_.graph_compute(backend, graph); });
               }) &&
               calls("backend table entry free", fake, table.free, [&] { api_.backend_free(backend); }) &&
               pointer("backend field device", "the word after the table", backend->device, api_.backend_device(backend));
    }

    bool registry_table() {
        Fake fake;
        auto *reg = fake.as<Registry>();
        const RegistryTable &table = reg->iface;
        return calls("registry table entry get_name", fake, table.get_name, [&] { api_.reg_name(reg); }) &&
               calls("registry table entry get_device_count", fake, table.get_device_count, [&] { api_.reg_dev_count(reg); }) &&
               calls("registry table entry get_device", fake, table.get_device, [&] { api_.reg_dev_get(reg, 0); }) &&
               calls("registry table entry get_proc_address", fake, table.get_proc_address, [&] { api_.reg_proc_address(reg, ""); });
    }

    // ---- the CPU: a real device, which may come from another library than the rest of ggml ----

    bool cpu_device() {
        Device *cpu = api_.dev_by_type(DeviceType::cpu);
        if (!holds("list of devices", "one with a CPU", cpu != nullptr, "one without")) return false;
        const Registry *reg = api_.dev_reg(cpu);
        return made("ggml_backend_dev_backend_reg", reg) && number("API number of the CPU backend", kApiVersion, reg->api_version) &&
               cpu_props(cpu) && cpu_computes(cpu);
    }

    bool cpu_props(Device *cpu) {
        DeviceProps props{};
        std::array<unsigned char, sizeof(DeviceCaps)> caps;
        std::size_t free_bytes = 0;
        std::size_t total_bytes = 0;
        api_.dev_props(cpu, &props);
        api_.dev_memory(cpu, &free_bytes, &total_bytes);
        std::memcpy(caps.data(), &props.caps, caps.size());
        return pointer("device property name", "the CPU's name", api_.dev_name(cpu), props.name) &&
               pointer("device property description", "the CPU's description", api_.dev_description(cpu), props.description) &&
               number("device property memory_total", total_bytes, props.memory_total) &&
               number("device property type", static_cast<int>(DeviceType::cpu), static_cast<int>(props.type)) &&
               pointer("device property device_id", "null", nullptr, props.device_id) &&
               equal("capabilities of the CPU", "0,0,1,0,1", listed(caps.data(), caps.size()));
    }

    // All of it at work, on one thread: 3 * 0.5.
    bool cpu_computes(Device *cpu) {
        alignas(64) std::array<float, 32> memory{3.0F};
        Buffer *buffer = api_.dev_buffer_from_host_ptr(cpu, memory.data(), sizeof(memory), sizeof(memory));
        Backend *backend = api_.dev_init(cpu, nullptr);
        if (!made("ggml_backend_dev_buffer_from_host_ptr", buffer) || !made("ggml_backend_dev_init", backend) ||
            !pointer("base of a buffer", "the address given", memory.data(), api_.buffer_base(buffer)) ||
            !pointer("device of a backend", "the CPU", cpu, api_.backend_device(backend))) {
            return false;
        }
        void *set_threads = api_.reg_proc_address(api_.dev_reg(cpu), "ggml_backend_set_n_threads");
        if (!made("ggml_backend_reg_get_proc_address", set_threads)) return false;
        reinterpret_cast<SetThreadsFn>(set_threads)(backend, 1);
        const bool ok = with_context([&](Context *ctx) {
            Tensor *in = f32(ctx, 1);
            Tensor *out = api_.scale(ctx, in, 0.5F);
            Graph *graph = api_.new_graph(ctx, 1, false);
            api_.tensor_alloc(buffer, in, memory.data());
            api_.tensor_alloc(buffer, out, memory.data() + 16);
            out->flags |= kFlagCompute;
            api_.graph_add_node(graph, out);
            return number("status of a graph", static_cast<int>(Status::success), static_cast<int>(api_.graph_compute(backend, graph))) &&
                   number("product of 3 and 0.5", 1.5F, memory[16]);
        });
        if (!ok) return false;
        api_.backend_free(backend);
        api_.buffer_free(buffer);
        return true;
    }
};

}  // namespace

bool verify(const Api &api, std::string &error) { return Verifier(api, error).run(); }

}  // namespace slotpool::abi
