// ggml's table of a stream: everything is queued, nothing waits but synchronize.
#include <new>

#include "graph_copy.h"
#include "stream.h"
#include "transfer.h"

namespace chaos {
namespace {

Stream &stream_of(abi::Backend *backend) { return *static_cast<Stream *>(backend->context); }

const char *get_name(abi::Backend *backend) { return stream_of(backend).device().name.c_str(); }

void free_stream(abi::Backend *backend) {
    delete static_cast<Stream *>(backend->context);
    delete backend;
}

void queue_transfer(abi::Backend *backend, const abi::Tensor *tensor, void *host, std::size_t offset, std::size_t bytes,
                    Transfer::Direction direction) {
    Stream &stream = stream_of(backend);
    const auto memory = memory_of(tensor);
    if (!memory || &memory->device() != &stream.device()) {
        return set_error(&stream.device(), std::string("Expected ") + tensor->name + " on " + stream.device().name + ", found it elsewhere");
    }
    const Transfer transfer(tensor, offset, bytes, host, direction);
    stream.queue(transfer.touch(&stream), [transfer](const Touched &) {
        transfer.run(false);
        return std::string();
    });
}

void set_tensor_async(abi::Backend *backend, abi::Tensor *tensor, const void *data, std::size_t offset, std::size_t bytes) {
    queue_transfer(backend, tensor, const_cast<void *>(data), offset, bytes, Transfer::to_device);
}

void get_tensor_async(abi::Backend *backend, const abi::Tensor *tensor, void *data, std::size_t offset, std::size_t bytes) {
    queue_transfer(backend, tensor, data, offset, bytes, Transfer::to_host);
}

void synchronize(abi::Backend *backend) {
    stream_of(backend).device().counters.add(c_synchronizes);
    stream_of(backend).synchronize();
}

abi::Status queue_graph(Stream &stream, abi::Graph *graph) {
    std::string error;
    const std::shared_ptr<GraphCopy> copy = GraphCopy::make(stream.device(), graph, error);
    if (!copy) {
        set_error(&stream.device(), error);
        return abi::Status::failed;
    }
    if (copy->nodes().empty()) return abi::Status::success;
    const bool is_queued = stream.queue(copy->touch(&stream), [&stream, copy](const Touched &touch) {
        std::string reason;
        const abi::Status status = stream.compute(copy->nodes(), touch, reason);
        if (status == abi::Status::success) return std::string();
        return reason.empty() ? "Expected the CPU to compute a graph, found status " + std::to_string(static_cast<int>(status)) : reason;
    });
    return is_queued ? abi::Status::success : abi::Status::failed;
}

abi::Status graph_compute(abi::Backend *backend, abi::Graph *graph) {
    try {
        return queue_graph(stream_of(backend), graph);
    } catch (const std::bad_alloc &) {
        return abi::Status::alloc_failed;
    }
}

abi::Guid *guid() {
    static abi::Guid the_guid = {{0x63, 0x68, 0x61, 0x6f, 0x73, 0x2d, 0x64, 0x65, 0x76, 0x69, 0x63, 0x65, 0x2d, 0x30, 0x30, 0x31}};
    return &the_guid;
}

void set_threads(abi::Backend *cpu, int n_threads) {
    const auto set = reinterpret_cast<abi::SetThreadsFn>(api().reg_proc_address(api().dev_reg(cpu_device()), "ggml_backend_set_n_threads"));
    if (set != nullptr) set(cpu, n_threads);
}

}  // namespace

abi::Backend *make_stream(Device &device) {
    try {
        abi::Backend *cpu = make_cpu_backend();
        if (cpu == nullptr) return nullptr;
        set_threads(cpu, static_cast<int>(device.knobs[k_n_threads]));
        abi::BackendTable table{};
        table.get_name = get_name;
        table.free = free_stream;
        table.set_tensor_async = set_tensor_async;
        table.get_tensor_async = get_tensor_async;
        table.synchronize = synchronize;
        table.graph_compute = graph_compute;
        return new abi::Backend{guid(), table, &device.ggml, new Stream(device, cpu)};
    } catch (const std::exception &) {
        return nullptr;
    }
}

}  // namespace chaos
