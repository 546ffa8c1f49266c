// The C interface over sessions: open, load, read the counters, close.
#include <algorithm>
#include <exception>
#include <iterator>

#include "backend/pool_stream.h"
#include "backend/registry.h"
#include "door/text.h"
#include "os/library.h"
#include "slotpool.h"

using namespace slotpool;

namespace {

int check(void *library, const std::string &load_error, char *text, size_t size) {
    abi::Api api;
    std::string error = load_error;
    const bool fits = library != nullptr && abi::load(library, api, error) && abi::verify(api, error);
    door::copy_text(fits ? "" : error, text, size);
    return fits ? 1 : 0;
}

// Where a counter of a phase goes, once for adding up and for setting to zero.
struct PhaseField {
    Count PhaseCounts::*from;
    uint64_t slotpool_phase_stats::*to;
};
constexpr PhaseField kPhaseFields[] = {
    {&PhaseCounts::events, &slotpool_phase_stats::events},
    {&PhaseCounts::lookups, &slotpool_phase_stats::lookups},
    {&PhaseCounts::hits, &slotpool_phase_stats::hits},
    {&PhaseCounts::misses, &slotpool_phase_stats::misses},
    {&PhaseCounts::rows_hit, &slotpool_phase_stats::rows_hit},
    {&PhaseCounts::rows_copy, &slotpool_phase_stats::rows_copy},
    {&PhaseCounts::rows_cpu, &slotpool_phase_stats::rows_cpu},
    {&PhaseCounts::bytes_copied, &slotpool_phase_stats::bytes_copied},
    {&PhaseCounts::bytes_saved, &slotpool_phase_stats::bytes_saved},
    {&PhaseCounts::ranges_copied, &slotpool_phase_stats::ranges_copied},
    {&PhaseCounts::empty_copies, &slotpool_phase_stats::empty_copies},
    {&PhaseCounts::wait_ns, &slotpool_phase_stats::wait_ns},
    {&PhaseCounts::copy_ns, &slotpool_phase_stats::copy_ns},
    {&PhaseCounts::update_ns, &slotpool_phase_stats::update_ns},
    {&PhaseCounts::hit_compute_ns, &slotpool_phase_stats::hit_compute_ns},
    {&PhaseCounts::miss_compute_ns, &slotpool_phase_stats::miss_compute_ns},
};
static_assert(sizeof(PhaseCounts) == std::size(kPhaseFields) * sizeof(Count), "every counter of a phase is in the table");

void add_phase(const PhaseCounts &from, slotpool_phase_stats &to) {
    for (const PhaseField &field : kPhaseFields) to.*field.to += (from.*field.from).get();
}

void add_group(const GroupCounts &from, slotpool_group_stats &to) {
    to.refused += from.refused.get();
    to.admitted += from.admitted.get();
    to.evicted += from.evicted.get();
    to.uploads_in_flight += from.uploads_in_flight.get();
    to.warmed += from.warmed.get();
    to.pinned += from.pinned.get();
    add_phase(from.phase[static_cast<int>(Phase::generation)], to.generation);
    add_phase(from.phase[static_cast<int>(Phase::prompt)], to.prompt);
}

slotpool_group_stats describe(const Session &session, std::size_t group) {
    const PlannedGroup &planned = session.plan.groups[group];
    slotpool_group_stats stats{};
    stats.layer = planned.layer;
    stats.slots = session.slots_of(static_cast<int>(group));
    stats.n_expert = planned.n_expert;
    for (int index : planned.tensors) {
        const PlannedTensor &tensor = session.plan.tensors[static_cast<std::size_t>(index)];
        stats.n_tensors += session.is_stored(tensor.name) ? 1 : 0;
        stats.slab_bytes += tensor.slab_bytes;
    }
    door::copy_text(planned.pass, stats.pass, sizeof(stats.pass));
    door::copy_text(session.device_of(static_cast<int>(group)), stats.device, sizeof(stats.device));
    return stats;
}

void reset(GroupCounts &group) {
    for (Count *count : {&group.refused, &group.admitted, &group.evicted, &group.warmed}) count->reset();
    for (PhaseCounts &phase : group.phase) {
        for (const PhaseField &field : kPhaseFields) (phase.*field.from).reset();
    }
}

}  // namespace

int slotpool_interface(void) { return SLOTPOOL_INTERFACE; }

void slotpool_last_error(char *text, size_t size) { door::copy_text(last_error(), text, size); }

int slotpool_is_registered(void) { return is_registered() ? 1 : 0; }

int slotpool_abi_check(const void *address, char *text, size_t size) {
    return check(os::library_of(address), "Expected ggml at the address given, found no library there", text, size);
}

int slotpool_abi_check_library(const char *path, char *text, size_t size) {
    std::string error;
    void *library = os::open_library(path, error);
    return check(library, error, text, size);
}

int slotpool_session_open(const char *plan_text, size_t n_bytes, char *text, size_t size) {
    Plan plan;
    std::string error;
    if (!parse_plan(plan_text, n_bytes, plan, error)) {
        door::copy_text(error, text, size);
        return 0;
    }
    int number = 0;
    try {
        number = sessions::open(std::move(plan), error);
        if (const auto session = sessions::get(number)) register_missing_devices(session->plan);
    } catch (const std::exception &unexpected) {  // no memory, no threads: the host program goes on
        error = std::string("Expected to open the files of the plan, found: ") + unexpected.what();
    }
    door::copy_text(error, text, size);
    return number;
}

void slotpool_session_loaded(void) { sessions::end_loading(); }

void slotpool_session_close(int session) { sessions::close(session); }

int slotpool_session_is_stored(int number, const char *tensor) {
    const auto session = sessions::get(number);
    return session && session->is_stored(tensor) ? 1 : 0;
}

void slotpool_session_take_failure(int number, char *text, size_t size) {
    const auto session = sessions::get(number);
    door::copy_text(session ? session->take_failure() : "", text, size);
}

void slotpool_session_add_reserve(int number, uint64_t bytes) {
    if (const auto session = sessions::get(number)) session->add_reserve(bytes);
}

uint64_t slotpool_session_reserve(int number) {
    const auto session = sessions::get(number);
    return session ? session->reserve() : 0;
}

void slotpool_session_why_buffered(int number, char *text, size_t size) {
    const auto session = sessions::get(number);
    door::copy_text(session && session->files ? session->files->why_buffered() : "", text, size);
}

uint64_t slotpool_session_repacked_bytes(int number) {
    const auto session = sessions::get(number);
    return session ? session->repacked_bytes() : 0;
}

void slotpool_session_off_reason(int number, int group, char *text, size_t size) {
    const auto session = sessions::get(number);
    const bool exists = session && group >= 0 && static_cast<std::size_t>(group) < session->plan.groups.size();
    door::copy_text(exists ? session->off_reason(group) : "", text, size);
}

int slotpool_session_trace(int number, const char *path, char *text, size_t size) {
    const auto session = sessions::get(number);
    std::string error = session ? "" : "Expected an open session, found none";
    if (session && session->recorder) error = "Expected a session that is not traced, found one that is";
    if (error.empty()) session->recorder = trace::Recorder::start(path, error);
    door::copy_text(error, text, size);
    return error.empty() ? 1 : 0;
}

int slotpool_session_end_trace(int number, uint64_t *n_events, uint64_t *n_dropped, char *text, size_t size) {
    const auto session = sessions::get(number);
    const bool is_traced = session && session->recorder;
    const trace::Totals totals = is_traced ? session->recorder->finish() : trace::Totals{0, 0, 0, "Expected a traced session, found none"};
    *n_events = totals.n_events;
    *n_dropped = totals.n_dropped;
    door::copy_text(totals.error, text, size);
    return totals.error.empty() ? 1 : 0;
}

int slotpool_session_stats(int number, slotpool_group_stats *out, int capacity) {
    const auto session = sessions::get(number);
    if (!session) return 0;
    const std::size_t n_groups = session->plan.groups.size();
    for (std::size_t group = 0; group < n_groups && static_cast<int>(group) < capacity; group++) out[group] = describe(*session, group);
    session->each_context([&](ContextCounts &context) {
        for (std::size_t group = 0; group < n_groups && static_cast<int>(group) < capacity; group++) {
            add_group(context.groups[group], out[group]);
        }
    });
    return static_cast<int>(n_groups);
}

int slotpool_session_ram_stats(int number, slotpool_group_stats *out, int capacity) {
    const auto session = sessions::get(number);
    if (!session) return 0;
    const std::size_t n_groups = session->plan.groups.size();
    for (std::size_t group = 0; group < n_groups && static_cast<int>(group) < capacity; group++) {
        out[group] = describe(*session, group);
        out[group].slots = session->ram_slots_of(static_cast<int>(group));
    }
    session->each_ram_context([&](ContextCounts &context) {
        for (std::size_t group = 0; group < n_groups && static_cast<int>(group) < capacity; group++) {
            add_group(context.groups[group], out[group]);
        }
    });
    return static_cast<int>(n_groups);
}

void slotpool_session_reset_stats(int number) {
    const auto session = sessions::get(number);
    if (!session) return;
    const auto reset_all = [](ContextCounts &context) {
        for (GroupCounts &group : context.groups) reset(group);
    };
    session->each_context(reset_all);
    session->each_ram_context(reset_all);
    session->page.count_reset();
}

int slotpool_session_heat(int number, int group, uint64_t *out, int capacity) {
    const auto session = sessions::get(number);
    if (!session || group < 0 || static_cast<std::size_t>(group) >= session->plan.groups.size()) return 0;
    const std::vector<std::uint64_t> heat = session->heat_of(group);
    std::copy_n(heat.begin(), std::min<std::size_t>(heat.size(), static_cast<std::size_t>(std::max(capacity, 0))), out);
    return static_cast<int>(heat.size());
}

int slotpool_session_devices(int number, slotpool_device_stats *out, int capacity) {
    const auto session = sessions::get(number);
    if (!session) return 0;
    const auto n_devices = static_cast<int>(session->page.n_devices());
    for (int device = 0; device < std::min(n_devices, capacity); device++) {
        const DeviceMemory &memory = session->page.device(device);
        out[device] = {memory.budget.get(),   memory.taken.get(),   memory.free.get(),
                       memory.copy_ns.get(),  memory.host_ns.get(), memory.hits_ns.get(),
                       memory.fetch_ns.get(), memory.staging.get(), {}};
        door::copy_text(session->page.device_name(device), out[device].name, sizeof(out[device].name));
    }
    return n_devices;
}

void slotpool_session_why_no_page(int number, char *text, size_t size) {
    const auto session = sessions::get(number);
    door::copy_text(session ? session->page.why_off() : "", text, size);
}

int slotpool_session_corrupt(int number, int group, int kind) {
    const auto session = sessions::get(number);
    if (!session || group < 0) return 0;
    int n_touched = 0;
    const Damage damage = kind == 0 ? Damage::swapped_slots : kind == 1 ? Damage::changed_byte : Damage::changed_bit;
    pool_streams::each(session.get(), [&](Dispatch &dispatch) { n_touched += dispatch.damage(static_cast<std::size_t>(group), damage); });
    return n_touched;
}
