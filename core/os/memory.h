// Anonymous memory for slots: what depends on the operating system about memory is only here.
#pragma once

#include <cstddef>

namespace slotpool::os {

// Page-aligned anonymous memory, asking for huge pages; nullptr when the system refuses.
void *reserve_memory(std::size_t bytes);
void release_memory(void *base, std::size_t bytes);

}  // namespace slotpool::os
