// Experts that never leave their slot once they have one: a policy leaves their slots out of what it orders, so that looking for a victim
// does not step over them.
#pragma once

#include <cstddef>
#include <vector>

namespace slotpool {

class KeptExperts {
   public:
    void add(int expert) {
        const auto index = static_cast<std::size_t>(expert);
        if (index >= kept_.size()) kept_.resize(index + 1, false);
        kept_[index] = true;
    }
    bool has(int expert) const { return static_cast<std::size_t>(expert) < kept_.size() && kept_[static_cast<std::size_t>(expert)]; }

   private:
    std::vector<bool> kept_;  // by expert; empty in a pool that keeps nobody
};

}  // namespace slotpool
