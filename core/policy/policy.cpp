#include "policy/policy.h"

#include "policy/decay.h"
#include "policy/follow.h"
#include "policy/lru.h"

namespace slotpool {

std::unique_ptr<Policy> make_policy(const std::string &name, double decay, int n_expert, int n_slots) {
    if (name == "lru") return std::make_unique<Lru>(n_slots);
    if (name == "decay") return std::make_unique<Decay>(decay, n_expert, n_slots);
    if (name == "follow") return std::make_unique<Follow>(decay, n_expert, n_slots);
    return nullptr;
}

}  // namespace slotpool
