// The queue of a stream. One piece of work executes at a time, in order, whoever executes it.
#include "stream.h"

#include "ops.h"

namespace chaos {

Stream::Stream(Device &device, abi::Backend *cpu) : device_(device), cpu_(cpu), is_threaded_(device.knobs.is_on(k_threaded)) {
    if (is_threaded_) worker_ = std::thread([this] { serve(); });
}

Stream::~Stream() {
    synchronize();
    if (is_threaded_) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            is_ending_ = true;
        }
        changed_.notify_all();
        worker_.join();
    }
    api().backend_free(cpu_);
}

bool Stream::queue(Touch touch, Work work) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (has_failed_) return false;
        auto touched = std::make_shared<const Touch>(std::move(touch));
        items_.push_back({touched, std::move(work)});
        begin(touched, !is_threaded_ && device_.knobs.is_on(k_poison));
    }
    changed_.notify_all();
    return true;
}

void Stream::synchronize() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!items_.empty() || is_executing_) {
        if (is_threaded_ || is_executing_) {
            changed_.wait(lock);
        } else {
            execute_one(lock);
        }
    }
}

abi::Status Stream::compute(const std::vector<abi::Tensor *> &nodes, const Touched &touch, std::string &error) {
    const Executor executor = {piece_, [this](abi::Graph *graph) { return api().graph_compute(cpu_, graph); },
                               [&touch](const abi::Tensor *node) { uses(touch, expert_ranges(node)); }};
    return compute_on(device_, nodes, executor, error);
}

void Stream::execute_one(std::unique_lock<std::mutex> &lock) {
    Item item = std::move(items_.front());
    items_.pop_front();
    is_executing_ = true;
    const bool is_void = has_failed_;  // what comes after a failure would compute from garbage
    lock.unlock();
    const std::string error = is_void ? std::string() : item.work(item.touch);
    if (!error.empty()) set_error(&device_, error);
    finish(item.touch);
    lock.lock();
    is_executing_ = false;
    has_failed_ = has_failed_ || !error.empty();
    changed_.notify_all();
}

void Stream::serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return is_ending_ || (!items_.empty() && !is_executing_); });
        if (items_.empty()) return;
        execute_one(lock);
    }
}

}  // namespace chaos
