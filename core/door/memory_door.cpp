// The C interface over memory: what is available, and what fits into it.
#include <algorithm>

#include "door/text.h"
#include "os/memory.h"
#include "plan/fit.h"
#include "slotpool.h"

using namespace slotpool;

void slotpool_available_memory(const char *root, uint64_t *host, uint64_t *cgroup) {
    const os::AvailableMemory found = os::available_memory(root == nullptr ? "" : root);
    *host = found.host;
    *cgroup = found.cgroup;
}

int slotpool_fit_slots(const char *plan_text, size_t n_bytes, uint64_t bytes, const uint64_t *slot_bytes, int n_groups, int32_t *slots, char *text,
                       size_t size) {
    Plan plan;
    std::string error;
    if (parse_plan(plan_text, n_bytes, plan, error) && static_cast<std::size_t>(n_groups) != plan.groups.size()) {
        error = "Expected the bytes of a slot for each of " + std::to_string(plan.groups.size()) + " groups, found " + std::to_string(n_groups);
    }
    door::copy_text(error, text, size);
    if (!error.empty()) return -1;
    const std::vector<int> fitting = fit_slots(plan, bytes, {slot_bytes, slot_bytes + n_groups});
    std::copy(fitting.begin(), fitting.end(), slots);
    return n_groups;
}
