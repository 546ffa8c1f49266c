// Tensors of another layout: the caller finds it in the context, the real tensor is kept aside.
#pragma once

#include <memory>
#include <vector>

#include "ggml.h"
#include "lie.h"

namespace lying {

struct Field {
    const char *name;
    std::size_t at, size;
};

#define FIELD(name) \
    Field { #name, offsetof(ggml_tensor, name), sizeof(ggml_tensor::name) }
inline const std::vector<Field> kFields = {FIELD(type), FIELD(buffer),   FIELD(ne),        FIELD(nb),   FIELD(op),   FIELD(op_params), FIELD(flags),
                                           FIELD(src),  FIELD(view_src), FIELD(view_offs), FIELD(data), FIELD(name), FIELD(extra)};

inline bool has_other_tensors() { return lie().rfind("insert:", 0) == 0 || lie().rfind("swap:", 0) == 0; }

// The fields in the order that the caller finds them; a field without a place in the real tensor is the unknown one.
inline std::vector<Field> make_layout() {
    const Field unknown = {"", SIZE_MAX, sizeof(kUnknown)};
    const std::string rest = lie().substr(lie().find(':') + 1);
    std::vector<Field> fields = kFields;
    const auto index = [&](const std::string &name) {
        for (std::size_t i = 0; i < fields.size(); i++) {
            if (name == fields[i].name) return i;
        }
        std::fprintf(stderr, "lying_ggml: no field %s\n", name.c_str()), std::abort();
    };
    if (lie().rfind("insert:", 0) == 0) {
        fields.insert(fields.begin() + static_cast<std::ptrdiff_t>(index(rest)), unknown);
    } else {
        std::swap(fields[index(rest.substr(0, rest.find(',')))], fields[index(rest.substr(rest.find(',') + 1))]);
    }
    return fields;
}

struct Pair {
    ggml_tensor *seen;  // by the caller, in the context
    std::unique_ptr<ggml_tensor> real;
};

inline std::vector<Pair> &pairs() {
    static std::vector<Pair> all;
    return all;
}

// The newest first: contexts come and go, and their addresses are used again.
inline ggml_tensor *original(const ggml_tensor *seen) {
    for (auto pair = pairs().rbegin(); pair != pairs().rend(); ++pair) {
        if (pair->seen == seen) return pair->real.get();
    }
    return const_cast<ggml_tensor *>(seen);
}

inline ggml_tensor *seen_of(ggml_tensor *real) {
    for (const Pair &pair : pairs()) {
        if (pair.real.get() == real) return pair.seen;
    }
    return real;
}

// Writes the real tensor where the caller looks, as the caller does not expect it.
inline ggml_tensor *show(ggml_tensor *real) {
    if (real == nullptr || !has_other_tensors()) return real;
    static const std::vector<Field> layout = make_layout();
    ggml_tensor values = *real;
    for (ggml_tensor *&source : values.src) source = seen_of(source);
    values.view_src = seen_of(values.view_src);
    auto *to = reinterpret_cast<std::uint8_t *>(seen_of(real));
    std::memset(to, 0, sizeof(ggml_tensor));
    std::size_t at = 0;
    for (const Field &field : layout) {
        const std::size_t alignment = field.size % 8 == 0 && std::strcmp(field.name, "op_params") != 0 ? 8 : 4;
        at = (at + alignment - 1) / alignment * alignment;
        const void *from = field.at == SIZE_MAX ? static_cast<const void *>(&kUnknown) : reinterpret_cast<const std::uint8_t *>(&values) + field.at;
        std::memcpy(to + at, from, field.size);
        at += field.size;
    }
    return seen_of(real);
}

// A tensor that the real ggml has just made.
inline ggml_tensor *present(ggml_tensor *made) {
    if (made == nullptr || !has_other_tensors()) return made;
    pairs().push_back({made, std::make_unique<ggml_tensor>(*made)});
    return show(pairs().back().real.get());
}

}  // namespace lying
