// What the pool of a program that knows nothing of us did: one line on stderr when the program exits, in the words of `slotpool run`.
//
// A plan may name a file for the report as well, which `slotpool exec` reads. Text, version 1, one statement a line, each beginning
// with the number of the process, since a program may start others under the same plan:
//
//   slotpool-report 1
//   4711 loaded                          the core is in the process and registered
//   4712 off REASON                      the core is in the process and stays out
//   4711 heat 3 exps 5:812 2:40          of a layer's pass, how many rows asked for each expert; where the plan says heat on, right before
//   4711 exit pooled=6 lookups=3072      the process exited; one that was killed leaves no such line
#pragma once

#include <memory>
#include <string>

#include "plan/plan.h"
#include "store/session.h"

namespace slotpool::exit_report {

// From now on this process, but none of its forks, says at its exit what the pool of `session` did.
void arm(std::shared_ptr<const Session> session);
bool is_armed();
// The core stays out of this process.
void refused(const Plan &plan, const std::string &reason);
// The line itself, without its end.
std::string line(const Session &session);

}  // namespace slotpool::exit_report
