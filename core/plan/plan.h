// The plan file: which expert tensor gets how many slots, on which device. Text, version 1, one statement a line:
//
//   slotpool-plan 1
//   policy decay 0.97                     policy NAME [DECAY]
//   poison off                            on: free and evicted slots are filled with 0xFF (tests)
//   group layer=0 pass=exps device=CPU slots=24 n_expert=128     slots=0, on a device: experts in the store, and no slots for them
//                                         claim=whole|explicit behind it: before the others when not all slots fit (core/plan/fit.h)
//   tensor blk.0.ffn_gate_exps.weight role=gate slab=884736
//   bias blk.0.ffn_gate_exps.bias         of an expert tensor of the group, [n, n_expert]: goes with it where it lies and where it is added
//   bypass on                             on: generated tokens take the stock path beside slots that ubatches of two tokens allocate (benches)
//   off blk.9.ffn_gate_exps.weight REASON WORDS
//   contexts all                          all | first: which contexts of the model have pools; first: the first that computes, while it lives
//   warm 5:1000000 2:750000               experts of the group above, the hottest first: slots begin with them; of a million events, how many
//                                         are expected to ask for each
//   pin share=250000 slots=65536 spare=4  how many of these are never evicted: at most so many millionths of a group's slots, at most so many
//                                         slots, and so many slots stay for others
//   heat on                               on: the report says how often each expert was asked for
//   report path=/tmp/some folder/report   where to leave what the pool did (core/backend/exit_report.h); the path is the rest of the line
//
// Where experts stay on disk, the files come first, memory has a line, and every tensor says where its experts lie:
//
//   memory budget=auto rail=auto reserve=0            bytes or auto; reserve is what will be taken before slots are
//   file 0 size=7146617184 mtime=1764440000000000000 path=/models/some model.gguf     the path is the rest of the line
//   tensor blk.0.ffn_gate_exps.weight role=gate slab=884736 file=0 offset=12288
//
// Either all tensors have a file or none has.
//
//   repack on                             on: slots of the CPU hold experts of files in the layout that llama.cpp repacks weights to, where it does
//
// Devices other than the CPU come before the groups that may use them. A group's device is CPU, one of these, or auto: the device on
// which its layer's router lies. `slots` is the most an expert tensor gets there; 0 is none.
//
//   device CUDA0 slots=48 budget=auto rail=1073741824      bytes or auto; rail stays free on the device
//   misses auto background                misses copy|cpu|auto|frozen [background|settled]
//
// settled: what was admitted is complete before the layer's next event begins (tests, and comparing with the reference pool).
//
//   prefill stream                                         prefill bypass|stream|auto: of experts in host memory, ubatches that do not fit the slots
//
// A group is expert tensors of one layer that share a routing and a slot table; its tensors follow it. A layer may have several groups
// with one pass, tensors of other roles in each: they share the routing, and each has slots of its own. slab is in bytes. Lines that begin
// with # are comments. Whatever is not known here is rejected with the line it stands in.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace slotpool {

constexpr std::size_t kMaxPlanBytes = 16U << 20;

struct PlannedTensor {
    std::string name;
    std::string role;
    std::size_t slab_bytes = 0;
    int group = -1;
    int file = -1;             // index in files; -1: the experts are in host memory
    std::uint64_t offset = 0;  // of expert 0 in the file, bytes
};

// A file as it was when it was planned for. Times are nanoseconds since the epoch.
struct PlannedFile {
    std::string path;
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;
};

// A device other than the CPU that may hold slots. Bytes.
struct PlannedDevice {
    std::string name;
    int slots = 0;  // the most an expert tensor gets
    bool is_budget_auto = true;
    std::uint64_t budget = 0;
    bool is_rail_auto = true;
    std::uint64_t rail = 0;
};

enum class Misses { copy, cpu, automatic, frozen };

// Ubatches that do not fit the slots of a device: left to llama.cpp, passed through the device beside the pool, or the cheaper of the two.
enum class Prefill { bypass, stream, automatic };

// Memory for slots of experts that stay on disk, in bytes.
struct PlannedMemory {
    bool is_budget_auto = true;  // what is available when slots are allocated
    std::uint64_t budget = 0;
    bool is_rail_auto = true;  // the larger of 64 MiB and 2 % of what is available
    std::uint64_t rail = 0;
    std::uint64_t reserve = 0;  // allocated by then, but not yet touched
};

// An expert tensor without slots, and why.
struct PlannedOff {
    std::string name;
    std::string reason;
};

// An expert that its group's slots begin with. `millionths` of the events to come are expected to ask for it.
struct PlannedWarm {
    int expert = 0;
    int millionths = 0;
};

// How many of those are never evicted.
struct PlannedPin {
    int millionths = 0;  // of a group's slots
    int slots = 0;
    int spare = 0;  // slots that stay for others
};

// Whose slots come first when not all fit: tensors that are wholly in slots, then numbers that a user gave, then the others.
enum class Claim { whole, stated, open };

struct PlannedGroup {
    int layer = 0;
    std::string pass;
    std::string device;
    int slots = 0;
    int n_expert = 0;
    Claim claim = Claim::open;
    std::vector<int> tensors;
    std::vector<PlannedWarm> warm;  // the hottest first
};

struct Plan {
    std::string policy = "decay";
    double decay = 0.97;
    bool poison = false;
    bool is_bypassed = false;
    bool is_repacked = false;
    Misses misses = Misses::copy;
    bool is_settled = false;
    Prefill prefill = Prefill::bypass;
    bool only_first_context = false;  // of experts in host memory: what lies on disk nobody else could read for the others
    bool has_heat_report = false;
    PlannedPin pin;
    PlannedMemory memory;
    std::vector<PlannedDevice> devices;
    std::vector<PlannedFile> files;
    std::vector<PlannedGroup> groups;
    std::vector<PlannedTensor> tensors;
    std::vector<PlannedOff> off;
    std::string report;                            // a file; empty: nobody asked for it
    std::unordered_map<std::string, int> by_name;  // index in tensors
    std::unordered_map<std::string, int> biases;   // group by name

    const PlannedTensor *find(const char *name) const;
    // Whether the events of group `index` are those of its layer and pass: of several that share a routing the first with slots.
    bool is_recorded(int index) const;
    // The line of a device; nullptr for one that has none.
    const PlannedDevice *find_device(const std::string &name) const;
    // Of so many slots of a group, how many hold experts that are never evicted.
    int pinned_slots(const PlannedGroup &group, int n_slots) const;
    // What an event may ask for so that every expert of it can have a slot, whoever is pinned.
    int usable_slots(const PlannedGroup &group, int n_slots) const;
    // True: experts stay on disk and are read into slots. False: the loader puts them into host memory.
    bool reads_files() const { return !files.empty(); }
};

// Reads a plan from text. On failure returns false and one line in `error`: expected, found, and the line number.
bool parse_plan(const char *text, std::size_t n_bytes, Plan &plan, std::string &error);

}  // namespace slotpool
