#include "dispatch/row_operands.h"

#include <algorithm>
#include <cstring>

namespace slotpool {
namespace {

constexpr std::size_t kMostOperandBytes = 64U << 20;  // what is copied from a device for a few rows of it

}  // namespace

abi::Tensor rows_tensor(std::int64_t ne0, std::size_t n_rows, std::size_t row_bytes, void *data) {
    abi::Tensor tensor{};
    tensor.type = abi::kTypeF32;
    tensor.ne[0] = ne0;
    tensor.ne[1] = tensor.ne[3] = 1;
    tensor.ne[2] = static_cast<std::int64_t>(n_rows);
    tensor.nb[0] = sizeof(float);
    tensor.nb[1] = tensor.nb[2] = row_bytes;
    tensor.nb[3] = row_bytes * n_rows;
    tensor.data = data;
    return tensor;
}

bool has_row_operand(const abi::Api &api, const abi::Tensor &operand, const abi::Tensor &node) {
    const auto is_one_or = [](std::int64_t n, std::int64_t of) { return n == 1 || n == of; };
    return operand.type == abi::kTypeF32 && operand.nb[0] == sizeof(float) && is_one_or(operand.ne[1], node.ne[1]) &&
           is_one_or(operand.ne[2], node.ne[2]) && operand.ne[3] == 1 && api.nbytes(&operand) <= kMostOperandBytes;
}

RowOperands::Copy *RowOperands::find(const abi::Tensor &operand) {
    const auto used = copies_.begin() + static_cast<std::ptrdiff_t>(n_used_);
    const auto found = std::find_if(copies_.begin(), used, [&](const Copy &one) { return one.of == &operand; });
    return found == used ? nullptr : &*found;
}

RowOperands::Copy &RowOperands::next(const abi::Tensor &operand) {
    if (n_used_ == copies_.size()) copies_.emplace_back();
    Copy &copy = copies_[n_used_++];
    copy.of = &operand;
    return copy;
}

const RowOperands::Fetched *RowOperands::fetched(const abi::Tensor &operand) const {
    const auto found = std::find_if(fetched_.begin(), fetched_.end(), [&](const Fetched &one) { return one.of == &operand; });
    return found == fetched_.end() ? nullptr : &*found;
}

void RowOperands::fetch(const abi::Tensor &operand) {
    if (fetched(operand) != nullptr) return;
    fetched_.push_back({&operand, std::vector<std::uint8_t>(api_.nbytes(&operand)), {}});
    api_.tensor_get(&operand, fetched_.back().data.data(), 0, fetched_.back().data.size());
}

void RowOperands::fetch_table(const abi::Tensor &table, const EventRows &rows) {
    if (fetched(table) != nullptr) return;
    const std::size_t row_bytes = static_cast<std::size_t>(table.ne[0]) * sizeof(float);
    fetched_.push_back({&table, std::vector<std::uint8_t>(row_bytes * rows.experts.size()), {}});
    Fetched &made = fetched_.back();
    for (const ExpertRows &one : rows.experts) {
        api_.tensor_get(&table, made.data.data() + made.experts.size() * row_bytes, static_cast<std::size_t>(one.expert) * table.nb[1], row_bytes);
        made.experts.push_back(one.expert);
    }
}

const abi::Tensor &RowOperands::rows_of(const abi::Tensor &operand, const Routing &routing, const EventRows &rows) {
    if (const Copy *known = find(operand)) return known->tensor;
    Copy &copy = next(operand);
    const std::uint8_t *whole = fetched(operand)->data.data();
    const auto n = static_cast<std::size_t>(operand.ne[0]);
    const std::size_t n_rows = rows.rows.size();
    copy.data.resize(n * n_rows);
    for (std::size_t i = 0; i < n_rows; i++) {
        const std::int64_t row = rows.rows[i];
        const auto token = static_cast<std::size_t>(row / routing.n_used % operand.ne[2]);
        const auto k = static_cast<std::size_t>(row % routing.n_used % operand.ne[1]);
        std::memcpy(copy.data.data() + i * n, whole + token * operand.nb[2] + k * operand.nb[1], n * sizeof(float));
    }
    copy.tensor = rows_tensor(operand.ne[0], n_rows, n * sizeof(float), copy.data.data());
    return copy.tensor;
}

const abi::Tensor &RowOperands::expert_rows_of(const abi::Tensor &table, const EventRows &rows, const Routing &routing) {
    if (const Copy *known = find(table)) return known->tensor;
    Copy &copy = next(table);
    const Fetched &whole = *fetched(table);
    const auto n = static_cast<std::size_t>(table.ne[0]);
    copy.data.resize(n * rows.rows.size());
    for (std::size_t i = 0; i < rows.rows.size(); i++) {
        const std::int32_t expert = routing.ids[static_cast<std::size_t>(rows.rows[i])];
        const auto place = static_cast<std::size_t>(std::find(whole.experts.begin(), whole.experts.end(), expert) - whole.experts.begin());
        std::memcpy(copy.data.data() + i * n, whole.data.data() + place * n * sizeof(float), n * sizeof(float));
    }
    copy.tensor = rows_tensor(table.ne[0], rows.rows.size(), n * sizeof(float), copy.data.data());
    std::swap(copy.tensor.ne[1], copy.tensor.ne[2]);  // [n, rows]
    copy.tensor.nb[2] = copy.tensor.nb[3];
    return copy.tensor;
}

}  // namespace slotpool
