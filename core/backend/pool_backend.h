// The pool backends of the process, so that tools can reach the pools of a session.
#pragma once

#include <functional>

#include "dispatch/dispatch.h"

namespace slotpool::pool_backends {

void add(Dispatch *dispatch);
void remove(Dispatch *dispatch);
// Visits every live context of the session. Not while one of them computes.
void each(const Session *session, const std::function<void(Dispatch &)> &visit);

}  // namespace slotpool::pool_backends
