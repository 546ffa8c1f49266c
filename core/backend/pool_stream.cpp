#include "backend/pool_stream.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "backend/engine_streams.h"
#include "backend/registry.h"
#include "store/store_buffer.h"

namespace slotpool {
namespace {

// What stands for a llama context while one of its streams lives. llama.cpp makes a stream on every pool device for each of its contexts, one
// after the other on one thread: a device that comes again begins the next context.
std::shared_ptr<const void> llama_context_of(const PoolDevice &device) {
    static thread_local std::vector<const PoolDevice *> seen;
    static thread_local std::weak_ptr<const void> last;
    std::shared_ptr<const void> found = last.lock();
    if (!found || std::find(seen.begin(), seen.end(), &device) != seen.end()) {
        found = std::make_shared<const char>('\0');
        last = found;
        seen.clear();
    }
    seen.push_back(&device);
    return found;
}

// A context may learn its session from its first expert matmul, and only then is known how its misses are served.
class PoolStream {
   public:
    explicit PoolStream(PoolDevice &device)
        : device_(device),
          context_(device.pooled_name(), llama_context_of(device)),
          stream_beside_(device.is_cpu() ? 0 : engine_streams::made_last(device.pooled())) {}

    Context &context() { return context_; }
    Dispatch *dispatch() { return dispatch_.get(); }

    abi::Status compute(abi::Graph *graph) {
        if (!is_ready(graph)) return abi::Status::failed;
        return dispatch_->compute(graph);
    }

    // Nothing of ours computes behind compute(): what may is the context's other stream on the device.
    void synchronize() const { engine_streams::synchronize(stream_beside_); }

    void fail(const std::string &what) {
        set_last_error(what);
        if (context_.session()) context_.session()->fail("Expected to compute on " + device_.pooled_name() + ", found: " + what);
    }

    void begin_ubatch(int n_threads) {
        context_.begin_ubatch();
        n_threads_ = n_threads;
        if (dispatch_) dispatch_->set_n_threads(n_threads);
    }

    void set_abort_callback(abi::AbortCallback callback, void *data) {
        abort_ = callback;
        abort_data_ = data;
        if (dispatch_) dispatch_->set_abort_callback(callback, data);
    }

   private:
    bool is_ready(abi::Graph *graph) {
        if (dispatch_) return true;
        if (device_.pooled() == nullptr) return false;  // takes() said no to everything: there is nothing to compute
        const abi::Api &api = registry_api();
        const Session *session = context_.session().get();
        for (int i = 0; session == nullptr && i < api.graph_n_nodes(graph); i++) {
            const abi::Tensor *node = api.graph_node(graph, i);
            const StoredTensor *stored = node->op == op_mul_mat_id() ? stored_tensor(node->src[0]) : nullptr;
            if (stored != nullptr) session = stored->session;
        }
        dispatch_ = make_dispatch({api, device_.pooled(), op_mul_mat_id()}, context_, session);
        if (!dispatch_) return false;
        if (n_threads_ > 0) dispatch_->set_n_threads(n_threads_);
        if (abort_ != nullptr) dispatch_->set_abort_callback(abort_, abort_data_);
        return true;
    }

    PoolDevice &device_;
    Context context_;
    std::uint64_t stream_beside_;
    std::unique_ptr<Dispatch> dispatch_;
    int n_threads_ = 0;
    abi::AbortCallback abort_ = nullptr;
    void *abort_data_ = nullptr;
};

struct Streams {
    std::mutex mutex;
    std::vector<PoolStream *> live;
};

// never destroyed: a program may free its contexts after our statics would be gone
Streams &streams() {
    static Streams *const the_streams = new Streams;
    return *the_streams;
}

// ---- backend (stream) ----

PoolStream *of(abi::Backend *backend) { return static_cast<PoolStream *>(backend->context); }

const char *backend_get_name(abi::Backend *backend) { return static_cast<PoolDevice *>(backend->device->context)->name(); }

void backend_free(abi::Backend *backend) {
    {
        const std::lock_guard<std::mutex> lock(streams().mutex);
        auto &live = streams().live;
        live.erase(std::remove(live.begin(), live.end(), of(backend)), live.end());
    }
    delete of(backend);
    delete backend;
}

// The scheduler asks for it before it copies an input of a split, and for nothing else where there is one. A layer's other operands may
// still be computed by the device then.
void backend_synchronize(abi::Backend *backend) { of(backend)->synchronize(); }

// ggml is C: no exception may leave through it
abi::Status backend_graph_compute(abi::Backend *backend, abi::Graph *graph) {
    try {
        return of(backend)->compute(graph);
    } catch (const std::bad_alloc &) {
        return abi::Status::alloc_failed;
    } catch (const std::exception &unexpected) {  // no thread left, for instance
        of(backend)->fail(unexpected.what());
        return abi::Status::failed;
    }
}

abi::Guid *pool_guid() {
    static abi::Guid guid = {{0x73, 0x6c, 0x6f, 0x74, 0x70, 0x6f, 0x6f, 0x6c, 0x2d, 0x70, 0x6f, 0x6f, 0x6c, 0x2d, 0x30, 0x31}};
    return &guid;
}

bool is_pool_backend(const abi::Backend *backend) { return backend->iface.graph_compute == backend_graph_compute; }

}  // namespace

abi::Backend *make_pool_stream(PoolDevice &device) {
    auto stream = std::make_unique<PoolStream>(device);
    if (auto session = sessions::loading()) stream->context().adopt(std::move(session));
    abi::BackendTable table{};
    table.get_name = backend_get_name;
    table.free = backend_free;
    table.synchronize = backend_synchronize;
    table.graph_compute = backend_graph_compute;
    auto backend = std::make_unique<abi::Backend>(abi::Backend{pool_guid(), table, device.device(), stream.get()});
    const std::lock_guard<std::mutex> lock(streams().mutex);
    streams().live.push_back(stream.release());
    return backend.release();
}

// llama.cpp calls this for every backend of a context once before each ubatch: our mark that one begins
void set_n_threads(abi::Backend *backend, int n_threads) {
    if (is_pool_backend(backend)) of(backend)->begin_ubatch(n_threads);
}

void set_abort_callback(abi::Backend *backend, abi::AbortCallback callback, void *data) {
    if (is_pool_backend(backend)) of(backend)->set_abort_callback(callback, data);
}

namespace pool_streams {

void each(const Session *session, const std::function<void(Dispatch &)> &visit) {
    const std::lock_guard<std::mutex> lock(streams().mutex);
    for (PoolStream *stream : streams().live) {
        if (stream->context().session().get() == session && stream->dispatch() != nullptr) visit(*stream->dispatch());
    }
}

}  // namespace pool_streams
}  // namespace slotpool
