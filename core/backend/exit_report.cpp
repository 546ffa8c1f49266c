#include "backend/exit_report.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <locale>
#include <map>
#include <sstream>
#include <utility>

#include "os/printable.h"
#include "os/process.h"

namespace slotpool::exit_report {
namespace {

constexpr const char *kElsewhere = "not in the store: the loader put it elsewhere (a device, an override), or does not use it";

struct Totals {
    std::uint64_t lookups = 0;
    std::uint64_t hits = 0;
    std::uint64_t bytes_copied = 0;
    std::uint64_t bytes_saved = 0;
    std::uint64_t refused = 0;
    std::uint64_t warmed = 0;
};

std::uint64_t slab_bytes(const Session &session, std::size_t group) {
    std::uint64_t bytes = 0;
    for (const int tensor : session.plan.groups[group].tensors) bytes += session.plan.tensors[static_cast<std::size_t>(tensor)].slab_bytes;
    return bytes;
}

Totals totals_of(const Session &session) {
    Totals sum;
    session.each_context([&](ContextCounts &context) {
        for (std::size_t i = 0; i < context.groups.size(); i++) {
            const GroupCounts &group = context.groups[i];
            sum.refused += group.refused.get();
            sum.warmed += group.warmed.get();
            sum.bytes_copied += group.warmed.get() * slab_bytes(session, i);
            for (const PhaseCounts &phase : group.phase) {
                sum.lookups += phase.lookups.get();
                sum.hits += phase.hits.get();
                sum.bytes_copied += phase.bytes_copied.get();
                sum.bytes_saved += phase.bytes_saved.get();
            }
        }
    });
    return sum;
}

// What was off, by reason. Models are gone when a program exits: what counts is what was stored while they lived.
std::map<std::string, int> off_by_reason(const Session &session) {
    std::map<std::string, int> found;
    for (const PlannedOff &off : session.plan.off) found[os::printable(off.reason)]++;
    for (std::size_t group = 0; group < session.plan.groups.size(); group++) {
        const std::string reason = session.off_reason(static_cast<int>(group));
        for (int tensor : session.plan.groups[group].tensors) {
            if (!reason.empty()) found["off: " + reason]++;
            if (reason.empty() && !session.was_stored(tensor)) found[std::string("off: ") + kElsewhere]++;
        }
    }
    return found;
}

int n_expert_tensors(const Session &session) { return static_cast<int>(session.plan.tensors.size() + session.plan.off.size()); }

int n_pooled(const Session &session) {
    int pooled = n_expert_tensors(session);
    for (const auto &[reason, count] : off_by_reason(session)) pooled -= count;
    return pooled;
}

// The program's locale is none of our business: a point, as everywhere else in our texts.
std::string fixed(double value, int decimals) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.setf(std::ios::fixed);
    out.precision(decimals);
    out << value;
    return out.str();
}

// As slotpool/sizes.py shows them.
std::string size(std::uint64_t bytes) {
    constexpr const char *kUnits[] = {"TiB", "GiB", "MiB", "KiB"};
    double unit_bytes = 1024.0 * 1024.0 * 1024.0 * 1024.0;
    for (const char *unit : kUnits) {
        const double value = static_cast<double>(bytes) / unit_bytes;
        unit_bytes /= 1024.0;
        if (value < 0.995) continue;
        std::string text = fixed(value, 2);
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.') text.pop_back();
        return text + unit;
    }
    return std::to_string(bytes) + "B";
}

std::uint64_t slot_bytes(const Session &session) {
    std::uint64_t bytes = 0;
    for (std::size_t group = 0; group < session.plan.groups.size(); group++) {
        if (!session.off_reason(static_cast<int>(group)).empty()) continue;
        const auto slots = static_cast<std::uint64_t>(session.slots_of(static_cast<int>(group)));
        bytes += slots * slab_bytes(session, group);
    }
    return bytes;
}

std::string disk(const Session &session) {
    if (!session.plan.reads_files()) return "";
    int least = session.slots_of(0);
    int most = least;
    for (std::size_t group = 1; group < session.plan.groups.size(); group++) {
        least = std::min(least, session.slots_of(static_cast<int>(group)));
        most = std::max(most, session.slots_of(static_cast<int>(group)));
    }
    const std::string why = session.files->why_buffered();
    return " (" + std::to_string(least) + (least == most ? "" : " to " + std::to_string(most)) + " of " +
           std::to_string(session.plan.groups[0].n_expert) + " experts" + (session.repacked_bytes() > 0 ? ", repacked" : "") +
           ", the others on disk" + (why.empty() ? "" : ", not read directly (" + why + ")") + ")";
}

std::string used(const Session &session) {
    const Totals sum = totals_of(session);
    const double hit_rate = sum.lookups == 0 ? 0.0 : static_cast<double>(sum.hits) / static_cast<double>(sum.lookups);
    std::string text = "pool " + std::to_string(n_pooled(session)) + " of " + std::to_string(n_expert_tensors(session)) + " expert tensors, " +
                       size(slot_bytes(session)) + " of slots" + disk(session) + ", hit rate " + fixed(100.0 * hit_rate, 1) + "% of " +
                       std::to_string(sum.lookups) + " lookups, " + size(sum.bytes_copied) + " copied, " + size(sum.bytes_saved) + " saved";
    if (sum.warmed > 0) text += ", " + std::to_string(sum.warmed) + " experts from the profile";
    if (sum.refused > 0) text += ", " + std::to_string(sum.refused) + " times a layer's batch was too large for its slots and took the stock path";
    for (const auto &[reason, count] : off_by_reason(session)) {
        text += "; " + std::to_string(count) + " of " + std::to_string(n_expert_tensors(session)) + " expert tensors " + reason;
    }
    return text;
}

// A report that cannot be written is nobody's trouble: its reader may have gone.
void append(const Plan &plan, const std::string &statement) {
    if (plan.report.empty()) return;
    std::ofstream file(plan.report, std::ios::app);
    file << std::to_string(os::process_number()) + " " + statement + "\n";
}

// heat LAYER PASS EXPERT:ROWS ..., of experts that were asked for
void append_heat(const Session &session) {
    for (std::size_t i = 0; i < session.plan.groups.size(); i++) {
        const PlannedGroup &group = session.plan.groups[i];
        const std::vector<std::uint64_t> heat = session.heat_of(static_cast<int>(i));
        std::string statement;
        for (std::size_t expert = 0; expert < heat.size(); expert++) {
            if (heat[expert] > 0) statement += " " + std::to_string(expert) + ":" + std::to_string(heat[expert]);
        }
        if (!statement.empty()) append(session.plan, "heat " + std::to_string(group.layer) + " " + group.pass + statement);
    }
}

struct Armed {
    std::shared_ptr<const Session> session;
    int process = 0;
};

// never destroyed: exit handlers and destructors of statics run in an order that is not ours
Armed &armed() {
    static Armed *const the_armed = new Armed;
    return *the_armed;
}

// A destructor of the library runs after every exit handler: the program's own last words, which a thread of its may still be
// writing, come before ours. It does not run in a process that ends without exit().
__attribute__((destructor)) void at_exit() {
    if (!is_armed() || os::process_number() != armed().process) return;  // a fork that exits is not the program
    try {
        const Session &session = *armed().session;
        std::fprintf(stderr, "slotpool: %s\n", line(session).c_str());
        if (session.plan.has_heat_report) append_heat(session);
        append(session.plan, "exit pooled=" + std::to_string(n_pooled(session)) + " lookups=" + std::to_string(totals_of(session).lookups));
    } catch (const std::exception &) {  // no memory for a line: the program ends without it
    }
}

}  // namespace

void arm(std::shared_ptr<const Session> session) {
    append(session->plan, "loaded");
    armed() = {std::move(session), os::process_number()};
}

bool is_armed() { return armed().session != nullptr; }

void refused(const Plan &plan, const std::string &reason) { append(plan, "off " + reason); }

std::string line(const Session &session) {
    if (n_pooled(session) > 0) return used(session);
    const std::map<std::string, int> off = off_by_reason(session);
    return "pool " + (off.empty() ? "off" : off.begin()->first);
}

}  // namespace slotpool::exit_report
