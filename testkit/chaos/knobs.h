// The knobs of a chaos device: names, least values and what they are without being turned. Environment: CHAOS_<NAME> for all devices.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string>

namespace chaos {

constexpr int kMaxDevices = 16;

// name, least value, value at the start
#define CHAOS_KNOBS(K)                                                                                          \
    K(devices, 1, 1)                 /* how many there are: read once, when ggml loads us */                    \
    K(threaded, 0, 0)                /* 1: a worker per stream; 0: lazy, until synchronised */                  \
    K(n_threads, 1, 1)               /* threads of a stream's kernels, for streams made later */                \
    K(integrated, 0, 0)              /* 1: says that it shares the host's memory */                             \
    K(host_memory, 0, 0)             /* 1: says that the CPU's memory is its own kind of host memory */         \
    K(total_bytes, 0, 17179869184.0) /* memory of the device */                                                 \
    K(max_buffer_bytes, -1, -1)      /* largest buffer that it promises, -1: any */                             \
    K(fail_after_bytes, -1, -1)      /* allocations fail after so many bytes since the last reset, -1: never */ \
    K(fail_above_bytes, -1, -1)      /* one allocation above so many bytes fails, -1: none */                   \
    K(offload_batch, 0, 32)          /* least batch whose weights it wants copied from the host */              \
    K(link_bytes_per_second, 0, 0)   /* 0: as fast as memory */                                                 \
    K(link_latency_ns, 0, 0)         /* of each transfer */                                                     \
    K(expert_ns_per_byte, 0, 0)      /* compute time per byte of the distinct experts of a MUL_MAT_ID */        \
    K(node_ns, 0, 0)                 /* compute time of any other node */                                       \
    K(catch_up, 0, 0)                /* 1: a wait that ends late shortens its thread's next ones */             \
    K(poison, 0, 1)                  /* 0xFF on allocation, on free, and in results until they exist */         \
    K(sign, 0, 0)                    /* 1: rows of MUL_MAT_ID carry the device's signature */                   \
    K(log_nodes, 0, 0)               /* so many nodes are written down */                                       \
    K(cpu_ns_per_byte, 0, 0)         /* of the CPU: time per byte of the distinct experts of a MUL_MAT_ID */

enum Knob : std::size_t {
#define CHAOS_ENUM(name, least, start) k_##name,
    CHAOS_KNOBS(CHAOS_ENUM)
#undef CHAOS_ENUM
        kKnobs
};

class Knobs {
   public:
    Knobs();
    double operator[](Knob knob) const { return values_[knob].load(std::memory_order_relaxed); }
    bool is_on(Knob knob) const { return (*this)[knob] > 0; }
    // A limit whose -1 means none: no number of bytes is above it then.
    bool is_above(Knob limit, double bytes) const { return (*this)[limit] >= 0 && bytes > (*this)[limit]; }
    void set(Knob knob, double value) { values_[knob].store(value, std::memory_order_relaxed); }

   private:
    std::array<std::atomic<double>, kKnobs> values_;
};

// kKnobs for a name that is none.
Knob knob_named(const char *name);
// Empty where the value may be set, else why not.
std::string refusal(Knob knob, double value);
// What CHAOS_<NAME> in the environment asks for, of all devices. False with a line in `error` where it asks for nonsense.
bool set_from_environment(Knobs &knobs, std::string &error);

}  // namespace chaos
