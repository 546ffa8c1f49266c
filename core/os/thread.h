// A thread of our own inside somebody else's program: what depends on the operating system about threads is only here.
#pragma once

#include <functional>
#include <thread>

namespace slotpool::os {

// Starts a thread on which the program's signal handlers never run: signals go to the program's own threads. Faults of the
// thread itself are still reported where they happen. Throws std::system_error when the system has no thread left.
std::thread start_thread(std::function<void()> work);

}  // namespace slotpool::os
