// Something whose speed is measured: set up once, then done again and again for a while.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "abi/ggml_api.h"

namespace slotpool::probe {

class Work {
   public:
    virtual ~Work() = default;
    // Does it once, complete when it returns. Gives the bytes that were moved or read (of nodes: their number); 0 where it failed.
    virtual std::uint64_t once() = 0;
};

struct Sample {
    std::uint64_t amount = 0;  // what once() counts; 0: it failed
    std::uint64_t ns = 0;
};

// Repeats the work for at least so long.
Sample repeat(Work &work, std::uint64_t least_ns);

// Weights of a matmul: n_matrices of [ne0, ne1] of a type, by ggml's number and name (both must agree). n_used of them are used by a node, as
// experts; 0: they are plain weights. Repacked as llama.cpp would repack them, or as a file has them.
struct Weights {
    int type = 0;
    std::string type_name;
    std::int64_t ne0 = 0, ne1 = 0;
    int n_matrices = 0;
    int n_used = 0;
    bool is_repacked = false;
};

// Every one of these gives nullptr and why in `error` when it cannot be had.

// Threads that read memory from end to end, a share each.
std::unique_ptr<Work> read_memory(std::uint64_t bytes, int n_threads, std::string &error);
// One-token expert matmuls on any device, n_used experts a node, through all experts: slabs come from memory when there are enough of them.
// Plain weights are a node each.
std::unique_ptr<Work> multiply(const abi::Api &api, abi::Device *device, const Weights &weights, int n_threads, std::string &error);
// Whether llama.cpp would repack such weights for the device, which is the CPU.
bool does_repack(const abi::Api &api, abi::Device *device, const Weights &weights);
// Nodes that compute next to nothing: what a node costs.
std::unique_ptr<Work> start_nodes(const abi::Api &api, abi::Device *device, int n_threads, std::string &error);

struct Copies {
    std::uint64_t host_bytes = 0;  // copies walk through so much host memory
    std::uint64_t slab_bytes = 0;
    bool to_host = false;
    bool is_pinned = false;  // host memory of the device's own buffer type for it
};
std::unique_ptr<Work> copy_slabs(const abi::Api &api, abi::Device *device, const Copies &copies, std::string &error);

// Slabs of a file, read at random places of [begin, end) as the pool reads them: `depth` at a time, past the page cache where that is possible.
struct FilePart {
    std::string path;
    std::uint64_t begin = 0, end = 0, slab_bytes = 0;
    int depth = 0;
};
// `why_buffered` says why it is not possible; empty when it is.
std::unique_ptr<Work> read_file(const FilePart &part, std::string &why_buffered, std::string &error);

// A buffer of a device that is held and was written to, so that it is really there.
std::shared_ptr<abi::Buffer> fill_device(const abi::Api &api, abi::Device *device, std::uint64_t bytes);

}  // namespace slotpool::probe
