// Threads on POSIX systems: std::thread, started with signals blocked.
#include <signal.h>

#include <utility>

#include "os/thread.h"

namespace slotpool::os {

namespace {

// A thread inherits the mask of the thread that starts it, so there is no moment in which a signal could reach it.
class BlockedSignals {
   public:
    BlockedSignals() {
        sigset_t blocked;
        sigfillset(&blocked);
        // raised by the thread itself: blocked, they would kill the program without its fault handler
        for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&blocked, fault);
        pthread_sigmask(SIG_SETMASK, &blocked, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals &) = delete;
    BlockedSignals &operator=(const BlockedSignals &) = delete;

   private:
    sigset_t before_;
};

}  // namespace

std::thread start_thread(std::function<void()> work) {
    const BlockedSignals blocked;
    return std::thread(std::move(work));
}

}  // namespace slotpool::os
