#include "transfer/slab_stream.h"

#include <algorithm>

namespace slotpool {
namespace {

constexpr std::size_t kLeastRing = 32U << 20;
constexpr std::size_t kRunsInRing = 4;  // one is computed, one is there, two are being read
constexpr std::size_t kPage = 4096;

}  // namespace

std::size_t ring_bytes(const SlabSource &source, const StoredTensors &tensors) {
    std::size_t largest = 0;
    for (const auto &tensor : tensors) largest = std::max(largest, source.room(*tensor, 1) + kPage);
    return std::max(kLeastRing, kRunsInRing * largest);
}

void SlabStream::start(const StoredTensors &tensors, const std::vector<std::size_t> &order, const std::vector<std::int32_t> &experts) {
    stop();
    tensors_ = tensors;
    for (const std::size_t tensor : order) plan_runs(tensor, experts);
    read_ahead();
}

void SlabStream::plan_runs(std::size_t tensor, const std::vector<std::int32_t> &experts) {
    const std::size_t longest = ring_.size() / kRunsInRing - kPage;
    for (std::size_t i = 0; i < experts.size();) {
        auto run = std::make_unique<SlabRun>();
        run->tensor = tensor;
        run->first = experts[i];
        do {
            run->n++;
            i++;
        } while (i < experts.size() && experts[i] == run->first + run->n && source_.room(*tensors_[tensor], run->n + 1) <= longest);
        planned_.push_back(std::move(run));
    }
}

void SlabStream::read_ahead() {
    while (!planned_.empty()) {
        const StoredTensor &tensor = *tensors_[planned_.front()->tensor];
        std::uint8_t *room = ring_.take(source_.room(tensor, planned_.front()->n));
        if (room == nullptr) return;
        coming_.push_back(std::move(planned_.front()));  // before it begins: what is being read must not be dropped unseen
        planned_.pop_front();
        SlabRun &run = *coming_.back();
        source_.begin(tensor, run.first, run.n, room, run.fetch);
    }
}

void SlabStream::stop() {
    planned_.clear();
    while (!coming_.empty()) {
        source_.drop(coming_.front()->fetch);
        coming_.pop_front();
        ring_.give_back();
    }
}

const SlabRun *SlabStream::wait(std::string &error) {
    SlabRun &run = *coming_.front();
    return source_.finish(run.fetch, error) ? &run : nullptr;
}

void SlabStream::done_with_run() {
    coming_.pop_front();
    ring_.give_back();
    read_ahead();
}

}  // namespace slotpool
