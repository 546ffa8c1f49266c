#include "backend/pool_backend.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace slotpool::pool_backends {
namespace {

std::mutex g_mutex;
// never destroyed: a program may free its contexts after our statics would be gone
std::vector<Dispatch *> &live() {
    static auto *const all = new std::vector<Dispatch *>;
    return *all;
}

}  // namespace

void add(Dispatch *dispatch) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    live().push_back(dispatch);
}

void remove(Dispatch *dispatch) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    live().erase(std::remove(live().begin(), live().end(), dispatch), live().end());
}

void each(const Session *session, const std::function<void(Dispatch &)> &visit) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    for (Dispatch *dispatch : live()) {
        if (dispatch->session().get() == session) visit(*dispatch);
    }
}

}  // namespace slotpool::pool_backends
