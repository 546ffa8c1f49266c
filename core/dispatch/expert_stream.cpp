#include "dispatch/expert_stream.h"

#include <algorithm>

#include "stats/stopwatch.h"

namespace slotpool {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::int32_t);

int find_cpy(const abi::Api &api) {
    abi::Context *ctx = api.init({8 * api.tensor_overhead(), nullptr, true});
    abi::Tensor *tensor = api.new_tensor_4d(ctx, abi::kTypeI32, 1, 1, 1, 1);
    const int op = api.cpy(ctx, tensor, tensor)->op;
    api.free(ctx);
    return op;
}

// Bytes of a tensor as words, which every device copies as they are, whatever they mean.
abi::Tensor words_at(const abi::Tensor &tensor, std::size_t offset, std::size_t n_bytes) {
    abi::Tensor words{};
    words.type = abi::kTypeI32;
    words.buffer = tensor.buffer;
    words.data = static_cast<std::uint8_t *>(tensor.data) + offset;
    words.extra = tensor.extra;
    words.ne[0] = static_cast<std::int64_t>(n_bytes / kWordBytes);
    words.ne[1] = words.ne[2] = words.ne[3] = 1;
    words.nb[0] = kWordBytes;
    words.nb[1] = words.nb[2] = words.nb[3] = n_bytes;
    return words;
}

abi::Tensor copy_node(int op, abi::Tensor &from, abi::Tensor &to) {
    abi::Tensor node = to;
    node.op = op;
    node.flags = abi::kFlagCompute;
    node.src[0] = &from;
    node.src[1] = &to;
    return node;
}

}  // namespace

ExpertStream::ExpertStream(const abi::Api &api, abi::Device *device, Uploader &uploader)
    : api_(api), device_(device), uploader_(uploader), op_cpy_(find_cpy(api)) {}

ExpertStream::~ExpertStream() { wait_for_copies(); }

bool ExpertStream::make_room(const std::vector<StoredTensors> &layers, bool poison, std::string &error) {
    staging_ = Staging::allocate(api_, device_, layers, poison, error);
    uses_slots_ = can_copy_inside(layers);
    return staging_ != nullptr;
}

// A device that copies no words inside itself gets everything from the host.
bool ExpertStream::can_copy_inside(const std::vector<StoredTensors> &layers) const {
    const auto is_in_words = [](const auto &tensor) { return tensor->slab_bytes % kWordBytes == 0; };
    const auto are_in_words = [&](const StoredTensors &layer) { return std::all_of(layer.begin(), layer.end(), is_in_words); };
    abi::Tensor from = words_at({}, 0, kWordBytes);
    abi::Tensor to = from;
    const abi::Tensor node = copy_node(op_cpy_, from, to);
    return std::all_of(layers.begin(), layers.end(), are_in_words) && api_.dev_supports_op(device_, &node);
}

// ---- an event begins ----

bool ExpertStream::begins(const PassingEvent &event, const std::vector<std::size_t> &indices) const {
    if (slabs_ != &event.slabs || ubatch_ != event.ubatch || !(routing_ == event.routing)) return true;
    return std::any_of(indices.begin(), indices.end(), [this](std::size_t index) { return bool{is_served_[index]}; });
}

void ExpertStream::begin(const PassingEvent &event) {
    wait_for_copies();  // of an event that ended early
    slabs_ = &event.slabs;
    ubatch_ = event.ubatch;
    routing_ = event.routing;
    counts_ = event.counts == nullptr ? nullptr : &event.counts->phase[static_cast<int>(event.phase)];
    is_served_.assign(event.slabs.tensors().size(), false);
    sort_experts(event);
    if (event.counts != nullptr) count(event);
}

void ExpertStream::sort_experts(const PassingEvent &event) {
    admitted_.clear();
    residents_.clear();
    runs_.clear();
    slot_of_.assign(static_cast<std::size_t>(event.slabs.tensors().front()->shape.ne[2]), kNone);
    if (event.pool != nullptr && uses_slots_) {
        for (const Lookup &lookup : event.pool->pass(event.routing, event.ubatch, event.phase, event.is_settled)) {
            if (lookup.is_hit) slot_of_[static_cast<std::size_t>(lookup.expert)] = lookup.slot;
            if (lookup.is_hit) residents_.push_back(lookup.expert);
            if (!lookup.is_hit && lookup.slot != kNone) admitted_.push_back(lookup);
        }
    }
    passing_ = event.routing.ids;
    std::sort(passing_.begin(), passing_.end());
    passing_.erase(std::unique(passing_.begin(), passing_.end()), passing_.end());
    const auto has_slot = [this](std::int32_t expert) { return slot_of_[static_cast<std::size_t>(expert)] != kNone; };
    passing_.erase(std::remove_if(passing_.begin(), passing_.end(), has_slot), passing_.end());
    for (const std::int32_t expert : passing_) add_run_of(expert);
}

void ExpertStream::add_run_of(std::int32_t expert) {
    if (runs_.empty() || runs_.back().first + runs_.back().n != expert) runs_.push_back({expert, 0});
    runs_.back().n++;
}

void ExpertStream::count(const PassingEvent &event) const {
    const StoredTensors &tensors = event.slabs.tensors();
    std::uint64_t slab_bytes = 0;
    for (const auto &tensor : tensors) slab_bytes += tensor->slab_bytes;
    const std::vector<std::int32_t> &ids = event.routing.ids;
    const auto has_slot = [this](std::int32_t expert) { return slot_of_[static_cast<std::size_t>(expert)] != kNone; };
    const auto rows_hit = static_cast<std::uint64_t>(std::count_if(ids.begin(), ids.end(), has_slot));
    counts_->events.add(1);
    counts_->lookups.add(residents_.size() + passing_.size());
    counts_->hits.add(residents_.size());
    counts_->misses.add(passing_.size());
    counts_->rows_hit.add(rows_hit);
    counts_->rows_copy.add(ids.size() - rows_hit);
    counts_->bytes_copied.add(passing_.size() * slab_bytes);
    counts_->bytes_saved.add(residents_.size() * slab_bytes);
    counts_->ranges_copied.add(runs_.size() * tensors.size());
    counts_->empty_copies.add(passing_.empty() ? 1 : 0);
    event.counts->admitted.add(admitted_.size());
}

// ---- its copies ----

bool ExpertStream::fetch(const std::vector<std::size_t> &indices, const HostSlabs &slabs) {
    for (const std::size_t index : indices) {
        const StoredTensor &stored = *slabs.tensors()[index];
        if (!staging_->take(index, stored)) return false;
        for (const Run &run : runs_) {
            Copy &copy = copies_.emplace_back();
            copy.index = index;
            copy.upload.expert = &stored;
            copy.upload.to = staging_->tensor(index);
            copy.upload.offset = static_cast<std::size_t>(run.first) * stored.slab_bytes;
            copy.upload.from = slabs.slab(index, run.first);
            copy.upload.bytes = static_cast<std::size_t>(run.n) * stored.slab_bytes;
            uploader_.submit(copy.upload, true);
        }
    }
    return true;
}

abi::Tensor *ExpertStream::arrived(std::size_t index, DevicePool *pool, DeviceGraph &graph) {
    const Stopwatch wait;
    for (const Copy &copy : copies_) {
        if (copy.index == index) uploader_.wait(copy.upload);
    }
    if (counts_ != nullptr) wait.add_to(counts_->wait_ns);
    abi::Tensor *weight = staging_->tensor(index);
    const auto place = [weight](std::int32_t expert) { return static_cast<std::size_t>(expert) * weight->nb[2]; };
    for (const std::int32_t expert : residents_) {
        const int slot = slot_of_[static_cast<std::size_t>(expert)];
        copy_inside(*pool->slot_tensor(index), pool->slots().offset(index, slot), *weight, place(expert), graph);
    }
    for (const Lookup &one : admitted_) {
        copy_inside(*weight, place(one.expert), *pool->slot_tensor(index), pool->slots().offset(index, one.slot), graph);
    }
    return weight;
}

void ExpertStream::copy_inside(const abi::Tensor &from, std::size_t from_offset, const abi::Tensor &to, std::size_t to_offset, DeviceGraph &graph) {
    parts_.push_back(words_at(from, from_offset, from.nb[2]));
    abi::Tensor &source = parts_.back();
    parts_.push_back(words_at(to, to_offset, to.nb[2]));
    abi::Tensor &place = parts_.back();
    parts_.push_back(copy_node(op_cpy_, source, place));
    graph.add(parts_.back());
}

// ---- an event ends ----

void ExpertStream::mark_served(const std::vector<std::size_t> &indices, DevicePool *pool) {
    wait_for_copies();
    for (const std::size_t index : indices) is_served_[index] = true;
    const bool is_complete = std::all_of(is_served_.begin(), is_served_.end(), [](bool one) { return one; });
    if (is_complete && pool != nullptr) pool->publish_passed();
}

void ExpertStream::give_up(DevicePool *pool) {
    wait_for_copies();
    slabs_ = nullptr;
    if (pool != nullptr) pool->abandon_passed();
}

void ExpertStream::wait_for_copies() {
    std::uint64_t took_ns = 0;
    for (const Copy &copy : copies_) {
        uploader_.wait(copy.upload);
        took_ns += copy.upload.took_ns;
    }
    if (counts_ != nullptr) counts_->copy_ns.add(took_ns);
    copies_.clear();
    parts_.clear();
}

}  // namespace slotpool
