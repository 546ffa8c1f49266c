#include "dispatch/part_matmul.h"

#include <chrono>

namespace slotpool {

abi::Status PartMatmul::compute(const abi::Tensor &node, std::size_t index, LayerPool &pool, const Routing &routing, std::string &error) {
    calls_.begin(node, routing, pool.pool().n_expert());
    if (!pool.passing().empty()) open_stream(index, pool);
    if (const abi::Status status = compute_slots(index, pool, error); status != abi::Status::success) return status;
    return compute_passing(index, pool, error);
}

void PartMatmul::hand_over(const abi::Tensor &node, std::size_t index, LayerPool &pool, const Routing &routing, std::vector<abi::Tensor *> &nodes) {
    calls_.begin(node, routing, pool.pool().n_expert());
    for (std::size_t i = 0; i < pool.lookups().size(); i++) {
        calls_.add(pool.lookups()[i].expert, pool.memory().expert_tensor(index, pool.slab(index, i)));
    }
    calls_.hand_over(nodes);
}

void PartMatmul::stop_stream() {
    if (stream_) stream_->stop();
    stream_of_ = nullptr;
}

template <class Wait>
bool PartMatmul::timed(LayerPool &pool, Wait wait) {
    const auto begin = std::chrono::steady_clock::now();
    const bool has_come = wait();
    pool.count_wait(static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count()));
    return has_come;
}

// what is there is computed before anything is waited for
abi::Status PartMatmul::compute_slots(std::size_t index, LayerPool &pool, std::string &error) {
    const std::vector<Lookup> &lookups = pool.lookups();
    std::vector<std::size_t> arriving;
    for (std::size_t i = 0; i < lookups.size(); i++) {
        if (lookups[i].slot == kNone) continue;
        if (pool.is_arriving(index, i)) {
            arriving.push_back(i);
            continue;
        }
        if (!pool.wait(index, i, error)) return abi::Status::failed;
        calls_.add(lookups[i].expert, pool.memory().expert_tensor(index, pool.slab(index, i)));
        if (const abi::Status status = run_when_full(); status != abi::Status::success) return status;
    }
    for (const std::size_t i : arriving) {
        if (pool.is_arriving(index, i)) {
            if (const abi::Status status = calls_.run(); status != abi::Status::success) return status;
        }
        if (!timed(pool, [&] { return pool.wait(index, i, error); })) return abi::Status::failed;
        calls_.add(lookups[i].expert, pool.memory().expert_tensor(index, pool.slab(index, i)));
        if (const abi::Status status = run_when_full(); status != abi::Status::success) return status;
    }
    return calls_.run();
}

bool PartMatmul::make_ring(std::string &error) {
    stream_ = std::make_unique<SlabStream>(source_, ring_bytes_);
    if (stream_->is_there()) return true;
    error = "Expected memory for a ring of " + std::to_string(ring_bytes_) + " bytes, found none. Give this process more memory";
    return false;
}

// The stream follows the order in which the graph asked last time; when it asks otherwise, it begins anew.
void PartMatmul::open_stream(std::size_t index, const LayerPool &pool) {
    if (stream_of_ == &pool && stream_event_ == pool.event_number() && stream_->next_tensor() == static_cast<int>(index)) return;
    stream_->start(pool.tensors(), pool.order_from(index), pool.passing());
    stream_of_ = &pool;
    stream_event_ = pool.event_number();
}

abi::Status PartMatmul::run_when_full() { return calls_.is_full() ? calls_.run() : abi::Status::success; }

abi::Status PartMatmul::compute_passing(std::size_t index, LayerPool &pool, std::string &error) {
    std::size_t n_computed = 0;
    while (!pool.passing().empty() && stream_->next_tensor() == static_cast<int>(index)) {
        const SlabRun *run = nullptr;
        if (!timed(pool, [&] { return (run = stream_->wait(error)) != nullptr; })) return abi::Status::failed;
        const std::size_t slab_bytes = pool.tensors()[index]->slab_bytes;
        for (std::int32_t i = 0; i < run->n; i++) {
            calls_.add(run->first + i, pool.memory().expert_tensor(index, run->fetch.slabs + static_cast<std::size_t>(i) * slab_bytes));
            if (const abi::Status status = run_when_full(); status != abi::Status::success) return status;
        }
        n_computed += static_cast<std::size_t>(run->n);
        if (const abi::Status status = calls_.run(); status != abi::Status::success) return status;
        stream_->done_with_run();
    }
    if (n_computed == pool.passing().size()) return abi::Status::success;
    error = "Expected " + std::to_string(pool.passing().size()) + " experts of " + pool.tensors()[index]->planned->name + " to pass, found " +
            std::to_string(n_computed) + ". This is a bug of slotpool: please report it";
    return abi::Status::failed;
}

}  // namespace slotpool
