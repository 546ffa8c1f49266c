// The plan file: which expert tensor gets how many slots, on which device. Text, version 1, one statement a line:
//
//   slotpool-plan 1
//   policy decay 0.97                     policy NAME [DECAY]
//   poison off                            on: free and evicted slots are filled with 0xFF (tests)
//   group layer=0 pass=exps device=CPU slots=24 n_expert=128
//   tensor blk.0.ffn_gate_exps.weight role=gate slab=884736
//   off blk.9.ffn_gate_exps.weight REASON WORDS
//
// A group is the expert tensors of one layer that share a routing; its tensors follow it. slab is in bytes. Lines that
// begin with # are comments. Whatever is not known here is rejected with the line it stands in.
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
};

struct PlannedGroup {
    int layer = 0;
    std::string pass;
    std::string device;
    int slots = 0;
    int n_expert = 0;
    std::vector<int> tensors;
};

struct Plan {
    std::string policy = "decay";
    double decay = 0.97;
    bool poison = false;
    std::vector<PlannedGroup> groups;
    std::vector<PlannedTensor> tensors;
    std::unordered_map<std::string, int> by_name;  // index in tensors

    const PlannedTensor *find(const char *name) const;
};

// Reads a plan from text. On failure returns false and one line in `error`: expected, found, and the line number.
bool parse_plan(const char *text, std::size_t n_bytes, Plan &plan, std::string &error);

}  // namespace slotpool
