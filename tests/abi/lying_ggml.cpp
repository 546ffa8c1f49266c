// A ggml that lies, for tests of the core's check. Exports ggml's own functions and hands each call on to the real ggml
// it is linked to, but for the one lie that SLOTPOOL_LIE names. Mimics a ggml built from other headers, where a field, an
// entry or a number is not where the core expects it; it computes nothing and checks nothing itself. Without a lie it is
// honest.
//
//   api:N            registries carry API number N          insert:FIELD   an unknown field stands before FIELD of a tensor
//   size:BYTES       a tensor takes so many bytes more      swap:A,B       two fields of a tensor have changed places
//   ops, types       the name tables are shifted by one     TABLE:A,B      two entries of a table have changed places
//   init:swap,shift  ggml_init reads other fields           TABLE+N        a table has N unknown entries in front
//   buffer-grown     the table given by value is larger     TABLE:tail     what follows the table is one word further on
//   graph:WHAT       a graph function does not do its work  null:FUNCTION  the function returns null
//   props:WHAT       other device properties                cpu:WHAT       the CPU lacks it, or has another
//   types:late       a type more among the later ones       no-backend, no-cpu, base, compute, product, status, nbytes, scale, operands
//
// TABLE is one of device, buffer-type, buffer (not +N: its table is given by value), backend, registry.
#include "ggml-backend.h"
#include "ggml.h"
#include "lie.h"
#include "lying_tables.h"
#include "lying_tensors.h"

using namespace lying;

namespace {

struct Words {
    void *word[8];
};
struct GrownTable {
    void *entry[12];  // the real one has 11
};

bool is_cpu(ggml_backend_dev_t device) { return device == REAL(ggml_backend_dev_by_type)(GGML_BACKEND_DEVICE_TYPE_CPU); }

// A copy of a registry with another API number.
ggml_backend_reg_t renumbered(ggml_backend_reg_t registry, int number) {
    static std::uint64_t copy[6];  // the number, four functions, the context
    std::memcpy(copy, static_cast<const void *>(registry), sizeof(copy));
    std::memcpy(copy, &number, sizeof(number));
    return reinterpret_cast<ggml_backend_reg_t>(copy);
}

}  // namespace

extern "C" {

// ---- contexts, tensors, graphs ----

// ggml_init, whatever its argument's layout: a structure of this size comes in memory, not in registers
ggml_context *init_from(Words given) __asm__("ggml_init");
ggml_context *init_from(Words given) {
    OR_NULL(ggml_init);
    static int n_calls = 0;
    if (is("init:second") && n_calls++ == 1) return nullptr;
    const int size = is("init:swap") || is("init:shift") ? 1 : 0;
    const int buffer = is("init:swap") ? 0 : is("init:shift") ? 2 : 1;
    bool no_alloc = false;
    std::memcpy(&no_alloc, &given.word[is("init:shift") ? 3 : 2], sizeof(no_alloc));
    return REAL(ggml_init)({reinterpret_cast<std::size_t>(given.word[size]), given.word[buffer], no_alloc && !is("init:alloc")});
}

std::size_t ggml_tensor_overhead() { return REAL(ggml_tensor_overhead)() + static_cast<std::size_t>(number_after("size:", 0)); }

ggml_tensor *ggml_new_tensor_4d(ggml_context *ctx, ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    OR_NULL(ggml_new_tensor_4d);
    return present(REAL(ggml_new_tensor_4d)(ctx, type, ne0, ne1, ne2, ne3));
}

ggml_tensor *ggml_view_1d(ggml_context *ctx, ggml_tensor *a, int64_t ne0, size_t offset) {
    OR_NULL(ggml_view_1d);
    return present(REAL(ggml_view_1d)(ctx, original(a), ne0, offset));
}

ggml_tensor *ggml_set_name(ggml_tensor *tensor, const char *name) {
    OR_NULL(ggml_set_name);
    return show(REAL(ggml_set_name)(original(tensor), name));
}

void ggml_set_input(ggml_tensor *tensor) {
    REAL(ggml_set_input)(original(tensor));
    show(original(tensor));
}

ggml_tensor *ggml_mul_mat_id(ggml_context *ctx, ggml_tensor *as, ggml_tensor *b, ggml_tensor *ids) {
    OR_NULL(ggml_mul_mat_id);
    ggml_tensor *made = REAL(ggml_mul_mat_id)(ctx, original(as), original(b), original(ids));
    if (is("operands")) std::swap(made->src[0], made->src[1]);
    return present(made);
}

ggml_tensor *ggml_scale(ggml_context *ctx, ggml_tensor *a, float s) {
    OR_NULL(ggml_scale);
    return present(REAL(ggml_scale)(ctx, original(a), is("scale") ? 2 * s : s));
}

size_t ggml_nbytes(const ggml_tensor *tensor) { return REAL(ggml_nbytes)(original(tensor)) + (is("nbytes") ? 4 : 0); }

const char *ggml_op_name(ggml_op op) {
    OR_NULL(ggml_op_name);
    return REAL(ggml_op_name)(static_cast<ggml_op>(op + (is("ops") ? 1 : 0)));
}

const char *ggml_type_name(ggml_type type) {
    OR_NULL(ggml_type_name);
    return REAL(ggml_type_name)(static_cast<ggml_type>(type + (is("types") || (is("types:late") && type > GGML_TYPE_Q8_K) ? 1 : 0)));
}

size_t ggml_graph_overhead_custom(size_t size, bool grads) { return REAL(ggml_graph_overhead_custom)(size, grads) / (is("graph:overhead") ? 2 : 1); }

ggml_cgraph *ggml_new_graph_custom(ggml_context *ctx, size_t size, bool grads) {
    OR_NULL(ggml_new_graph_custom);
    return REAL(ggml_new_graph_custom)(ctx, size, grads);
}

void ggml_graph_clear(ggml_cgraph *graph) {
    if (!is("graph:clear")) REAL(ggml_graph_clear)(graph);
}

void ggml_graph_add_node(ggml_cgraph *graph, ggml_tensor *tensor) {
    if (!is("graph:add")) REAL(ggml_graph_add_node)(graph, original(tensor));
}

int ggml_graph_n_nodes(ggml_cgraph *graph) { return REAL(ggml_graph_n_nodes)(graph) + (is("graph:count") ? 1 : 0); }

ggml_tensor *ggml_graph_node(ggml_cgraph *graph, int i) {
    OR_NULL(ggml_graph_node);
    return seen_of(REAL(ggml_graph_node)(graph, is("graph:order") ? -1 - i : is("graph:first") ? 0 : i));
}

// ---- buffer type ----

const char *ggml_backend_buft_name(ggml_backend_buffer_type_t type) {
    OR_NULL(ggml_backend_buft_name);
    return call<const char *>(kBufferType, 0, type);
}

ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    OR_NULL(ggml_backend_buft_alloc_buffer);
    return call<ggml_backend_buffer_t>(kBufferType, 1, type, size);
}

size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t type) { return call<size_t>(kBufferType, 2, type); }

bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t type) { return call<bool>(kBufferType, 5, type); }

ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t type) {
    OR_NULL(ggml_backend_buft_get_device);
    return tail_of<ggml_backend_dev_t>(kBufferType, type);
}

// ---- buffer: its structure is not public, so it is made here, as the real ggml makes it ----

struct SeenBuffer {
    void *table[11];
    void *words[5];  // buffer type, context, size, usage
};

void *init_buffer(void *type, GrownTable table, void *context, size_t size) __asm__("ggml_backend_buffer_init");
void *init_buffer(void *type, GrownTable table, void *context, size_t size) {
    OR_NULL(ggml_backend_buffer_init);
    auto *buffer = new SeenBuffer();  // operator new, like the real one: the real ggml may delete it
    std::memcpy(buffer->table, table.entry, is("buffer-grown") ? sizeof(table.entry) : sizeof(buffer->table));
    void **word = buffer->words + (is("buffer-grown") || is("buffer:tail") ? 1 : 0);
    *word++ = type;
    *word++ = is("buffer:size") ? reinterpret_cast<void *>(size) : context;
    *word++ = is("buffer:size") ? context : reinterpret_cast<void *>(is("buffer:bytes") ? size + 64 : size);
    if (is("buffer:usage")) *word = reinterpret_cast<void *>(GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    return buffer;
}

void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    if (buffer == nullptr) return;
    if (word_of(kBuffer, buffer, place_of(kBuffer, 0)) != nullptr) call<void>(kBuffer, 0, buffer);
    ::operator delete(buffer);
}

void *ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer) {
    OR_NULL(ggml_backend_buffer_get_base);
    auto *base = call<char *>(kBuffer, 1, buffer);
    return is("base") ? base + 64 : base;
}

ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer) {
    OR_NULL(ggml_backend_buffer_get_type);
    return REAL(ggml_backend_buffer_get_type)(buffer);
}

void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    if (!is("buffer:set")) REAL(ggml_backend_buffer_set_usage)(buffer, usage);
}

enum ggml_backend_buffer_usage ggml_backend_buffer_get_usage(ggml_backend_buffer_t buffer) {
    return is("buffer:get") ? GGML_BACKEND_BUFFER_USAGE_ANY : REAL(ggml_backend_buffer_get_usage)(buffer);
}

size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer) {
    return REAL(ggml_backend_buffer_get_size)(buffer) + (is("buffer:more") ? 64 : 0);
}

void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) { call<void>(kBuffer, 9, buffer, value); }

void ggml_backend_tensor_set(ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    call<void>(kBuffer, 4, original(tensor)->buffer, original(tensor), data, offset, size);
}

void ggml_backend_tensor_get(const ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    call<void>(kBuffer, 5, original(tensor)->buffer, original(tensor), data, offset, size);
}

ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, ggml_tensor *tensor, void *address) {
    ggml_tensor *real = original(tensor);
    real->buffer = buffer;
    real->data = address;
    ggml_status status = GGML_STATUS_SUCCESS;
    if (word_of(kBuffer, buffer, place_of(kBuffer, 2)) != nullptr) status = call<ggml_status>(kBuffer, 2, buffer, real);
    show(real);
    return status;
}

// ---- backend ----

const char *ggml_backend_name(ggml_backend_t backend) {
    OR_NULL(ggml_backend_name);
    return call<const char *>(kBackend, 0, backend);
}

void ggml_backend_free(ggml_backend_t backend) { call<void>(kBackend, 1, backend); }

void ggml_backend_synchronize(ggml_backend_t backend) {
    if (word_of(kBackend, backend, place_of(kBackend, 7)) != nullptr) call<void>(kBackend, 7, backend);
}

ggml_status ggml_backend_graph_compute(ggml_backend_t backend, ggml_cgraph *graph) {
    const bool is_empty = REAL(ggml_graph_n_nodes)(graph) == 0;  // as when only the table is looked at
    const bool is_idle = is("compute") || (is("product") && !is_empty);
    const auto status = is_idle ? GGML_STATUS_SUCCESS : call<ggml_status>(kBackend, 12, backend, graph);
    ggml_backend_synchronize(backend);
    return is("status") && !is_empty ? GGML_STATUS_FAILED : status;
}

ggml_backend_dev_t ggml_backend_get_device(ggml_backend_t backend) {
    OR_NULL(ggml_backend_get_device);
    const auto device = tail_of<ggml_backend_dev_t>(kBackend, backend);
    return is("cpu:device") && is_cpu(device) ? nullptr : device;
}

// ---- device ----

const char *ggml_backend_dev_name(ggml_backend_dev_t device) {
    OR_NULL(ggml_backend_dev_name);
    return call<const char *>(kDevice, 0, device);
}

const char *ggml_backend_dev_description(ggml_backend_dev_t device) {
    OR_NULL(ggml_backend_dev_description);
    return call<const char *>(kDevice, 1, device);
}

void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total) { call<void>(kDevice, 2, device, free, total); }

enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t device) { return call<enum ggml_backend_dev_type>(kDevice, 3, device); }

void ggml_backend_dev_get_props(ggml_backend_dev_t device, ggml_backend_dev_props *props) {
    std::memset(static_cast<void *>(props), 0, sizeof(*props) + (is("props:grown") ? 8 : 0));
    call<void>(kDevice, 4, device, props);
    if (!is_cpu(device)) return;
    auto *bytes = reinterpret_cast<std::uint8_t *>(props);
    if (is("props:caps")) std::memmove(bytes + offsetof(ggml_backend_dev_props, caps) + 1, bytes + offsetof(ggml_backend_dev_props, caps), 5);
    if (is("props:name")) std::swap(props->name, props->description);
    if (is("props:description")) props->description = props->name;
    if (is("props:total")) props->memory_total = 1;
    if (is("props:id")) props->device_id = props->name;
    if (is("props:type")) props->type = static_cast<enum ggml_backend_dev_type>(7);
}

ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t device) {
    OR_NULL(ggml_backend_dev_backend_reg);
    const auto registry = tail_of<ggml_backend_reg_t>(kDevice, device);
    if (!is_cpu(device)) return registry;
    return is("cpu:api") ? renumbered(registry, 3) : is("cpu:registry") ? nullptr : registry;
}

ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char *parameters) {
    OR_NULL(ggml_backend_dev_init);
    const auto backend = call<ggml_backend_t>(kDevice, 5, device, parameters);
    return is("cpu:init") && is_cpu(device) ? nullptr : backend;
}

ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t device) {
    OR_NULL(ggml_backend_dev_buffer_type);
    return call<ggml_backend_buffer_type_t>(kDevice, 6, device);
}

ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(ggml_backend_dev_t device, void *base, size_t size, size_t max_tensor_size) {
    OR_NULL(ggml_backend_dev_buffer_from_host_ptr);
    const auto buffer = call<ggml_backend_buffer_t>(kDevice, 8, device, base, size, max_tensor_size);
    return is("cpu:buffer") && is_cpu(device) ? nullptr : buffer;
}

bool ggml_backend_dev_supports_op(ggml_backend_dev_t device, const ggml_tensor *op) {
    return call<bool>(kDevice, 9, device, static_cast<const ggml_tensor *>(original(op)));
}

bool ggml_backend_dev_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) { return call<bool>(kDevice, 10, device, type); }

// ---- registry ----

const char *ggml_backend_reg_name(ggml_backend_reg_t registry) {
    OR_NULL(ggml_backend_reg_name);
    return call<const char *>(kRegistry, 0, registry);
}

size_t ggml_backend_reg_dev_count(ggml_backend_reg_t registry) { return call<size_t>(kRegistry, 1, registry); }

ggml_backend_dev_t ggml_backend_reg_dev_get(ggml_backend_reg_t registry, size_t index) {
    OR_NULL(ggml_backend_reg_dev_get);
    return call<ggml_backend_dev_t>(kRegistry, 2, registry, index);
}

void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t registry, const char *name) {
    OR_NULL(ggml_backend_reg_get_proc_address);
    void *function = call<void *>(kRegistry, 3, registry, name);
    return is("cpu:functions") ? nullptr : function;
}

size_t ggml_backend_reg_count() { return is("no-backend") ? 0 : REAL(ggml_backend_reg_count)(); }

ggml_backend_reg_t ggml_backend_reg_get(size_t index) {
    OR_NULL(ggml_backend_reg_get);
    const auto registry = REAL(ggml_backend_reg_get)(index);
    return lie().rfind("api:", 0) == 0 ? renumbered(registry, static_cast<int>(number_after("api:", 2))) : registry;
}

ggml_backend_dev_t ggml_backend_dev_get(size_t index) {
    OR_NULL(ggml_backend_dev_get);
    return REAL(ggml_backend_dev_get)(index);
}

ggml_backend_dev_t ggml_backend_dev_by_name(const char *name) {
    OR_NULL(ggml_backend_dev_by_name);
    return REAL(ggml_backend_dev_by_name)(name);
}

ggml_backend_dev_t ggml_backend_dev_by_type(enum ggml_backend_dev_type type) {
    OR_NULL(ggml_backend_dev_by_type);
    return is("no-cpu") ? nullptr : REAL(ggml_backend_dev_by_type)(type);
}

}  // extern "C"
