// The C interface of the core: the only door, used by slotpool/native alone.
//
// Text results: the function copies at most `size` bytes with the terminating zero into `text`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLOTPOOL_API __attribute__((visibility("default")))

// Interface number: slotpool.native refuses a core with another one.
#define SLOTPOOL_INTERFACE 14

SLOTPOOL_API int slotpool_interface(void);
SLOTPOOL_API void slotpool_last_error(char *text, size_t size);
// 1: ggml has this core's registry (and not that of another copy of the core).
SLOTPOOL_API int slotpool_is_registered(void);

// ---- ABI ----
// Compares the ggml that holds `address` (any of its functions) with what the core was written for. 1: fits; 0: `text` says why not.
SLOTPOOL_API int slotpool_abi_check(const void *address, char *text, size_t size);
SLOTPOOL_API int slotpool_abi_check_library(const char *path, char *text, size_t size);

// ---- sessions ----
// Opens a session for the model that is loaded next. Returns its number, or 0 and why in `text`.
SLOTPOOL_API int slotpool_session_open(const char *plan, size_t n_bytes, char *text, size_t size);
// The model and its first context are there: what is made from now on does not belong to the session.
SLOTPOOL_API void slotpool_session_loaded(void);
SLOTPOOL_API void slotpool_session_close(int session);
SLOTPOOL_API int slotpool_session_is_stored(int session, const char *tensor);
// Why the last request failed, and forgets it; empty when it did not fail because of the pool.
SLOTPOOL_API void slotpool_session_take_failure(int session, char *text, size_t size);
// Why a planned group is not pooled after all (no memory for its slots, another shape than planned); empty when it is.
SLOTPOOL_API void slotpool_session_off_reason(int session, int group, char *text, size_t size);

// Bytes that will be taken before slots of experts on disk are allocated, and are not counted as taken yet (compute buffers).
SLOTPOOL_API void slotpool_session_add_reserve(int session, uint64_t bytes);
// What was said so, or the plan's own number where that is more.
SLOTPOOL_API uint64_t slotpool_session_reserve(int session);
// Why experts on disk are not read directly; empty when they are, or are not on disk.
SLOTPOOL_API void slotpool_session_why_buffered(int session, char *text, size_t size);
// Bytes of the experts whose slots hold them in the layout that llama.cpp repacks weights to; all experts of their tensors, in slots or not.
SLOTPOOL_API uint64_t slotpool_session_repacked_bytes(int session);

// Records the routing of every pooled event from here on, appended to a trace file that has its header: before the first decode. 1, or 0
// and why in `text`. The end of it writes the file's end, and is told once: 1, or 0 and why the file is not whole.
SLOTPOOL_API int slotpool_session_trace(int session, const char *path, char *text, size_t size);
SLOTPOOL_API int slotpool_session_end_trace(int session, uint64_t *n_events, uint64_t *n_dropped, char *text, size_t size);

typedef struct {
    uint64_t events, lookups, hits, misses;
    uint64_t rows_hit, rows_copy, rows_cpu;
    uint64_t bytes_copied, bytes_saved;
    uint64_t ranges_copied, empty_copies;
    uint64_t wait_ns;                          // the computing thread waited for slabs
    uint64_t copy_ns, update_ns;               // slabs copied into slots; the pool's own bookkeeping
    uint64_t hit_compute_ns, miss_compute_ns;  // rows computed from slots, and where their experts lie
} slotpool_phase_stats;

typedef struct {
    int32_t layer, slots, n_expert, n_tensors;  // slots: allocated, before that planned; n_tensors: in the store
    uint64_t slab_bytes;                        // of all tensors of the group
    uint64_t refused;                           // ubatches that went the stock path because they did not fit
    uint64_t admitted, evicted;                 // experts that were given a slot, and that lost theirs to another
    uint64_t uploads_in_flight;                 // slabs on their way into slots now
    uint64_t warmed;                            // experts that slots began with: no phase counts their bytes
    uint64_t pinned;                            // slots now that hold experts that are never evicted
    slotpool_phase_stats generation, prompt;
    char pass[16], device[64];
} slotpool_group_stats;

// Fills up to `capacity` entries, one per planned group, summed over the session's contexts; returns the number of groups.
SLOTPOOL_API int slotpool_session_stats(int session, slotpool_group_stats *out, int capacity);
// The same for the RAM tier of groups whose pool is on a device while experts stay on disk; slots are -1 where a group has none.
SLOTPOOL_API int slotpool_session_ram_stats(int session, slotpool_group_stats *out, int capacity);
SLOTPOOL_API void slotpool_session_reset_stats(int session);
// How many rows asked for each expert of a group so far, whatever was reset; fills up to `capacity`, returns the number of experts.
SLOTPOOL_API int slotpool_session_heat(int session, int group, uint64_t *out, int capacity);

// Bytes; all bits set where nobody has asked yet. free: when slots were allocated. Nanoseconds, 0 where nothing was measured: of an expert
// copied and computed by the CPU, of an event with nothing but hits, and of what the CPU's part of an event fetches and gives back.
typedef struct {
    uint64_t budget, taken, free;
    uint64_t copy_ns, host_ns, hits_ns, fetch_ns;
    uint64_t staging; /* bytes, of what was taken: room for experts that only pass through */
    char name[64];
} slotpool_device_stats;

// Fills up to `capacity` entries, one per device of the plan; returns the number of devices.
SLOTPOOL_API int slotpool_session_devices(int session, slotpool_device_stats *out, int capacity);
// Why other processes cannot see the counters (docs/design/stats.md); empty when they can.
SLOTPOOL_API void slotpool_session_why_no_page(int session, char *text, size_t size);

// For tests and for the tool that must find damage: kind 0 exchanges slots in the map of a group, two and two, kind 1 changes a bit of
// the first tensor in every slot in use, kind 2 in one of them. Returns the number of slots touched.
SLOTPOOL_API int slotpool_session_corrupt(int session, int group, int kind);

// ---- memory ----
// What may still be taken, in bytes; all bits set: nothing limits. `root` stands for "/" in tests, NULL is "/".
SLOTPOOL_API void slotpool_available_memory(const char *root, uint64_t *host, uint64_t *cgroup);
// How many slots of each of the plan's groups fit into `bytes`, with slots of `slot_bytes` each. Returns the number of groups, or -1
// and why in `text`.
SLOTPOOL_API int slotpool_fit_slots(const char *plan, size_t n_bytes, uint64_t bytes, const uint64_t *slot_bytes, int n_groups, int32_t *slots,
                                    char *text, size_t size);

// ---- what llama.cpp reserves ----
typedef struct {
    uint64_t weights, context, compute;
    char name[64];  // of the device; "CPU" for all host memory
} slotpool_reserved;

// `breakdown` is the engine's llama_get_memory_breakdown, `ggml` any function of its ggml, `context` a llama_context. Fills up to `capacity`
// entries, one per device; returns their number, -1 where the ggml does not fit. A C++ call: only in a process of its own.
SLOTPOOL_API int slotpool_reserved_bytes(const void *breakdown, const void *ggml, const void *context, slotpool_reserved *out, int capacity);

// ---- the pool alone: simulator, benchmarks, property tests ----
typedef struct slotpool_pool slotpool_pool;
typedef struct {
    int32_t expert, slot, evicted, n_rows, is_hit;
} slotpool_lookup;

// NULL for an unknown policy or numbers out of range. Experts and slots out of range are answered with 0, -1 or nothing.
SLOTPOOL_API slotpool_pool *slotpool_pool_new(int n_expert, int n_slots, const char *policy, double decay);
SLOTPOOL_API void slotpool_pool_free(slotpool_pool *pool);
// One event. Returns the number of distinct experts (at most `capacity` are written), -1 on an id out of range.
// With publish != 0 every admitted slot is published at once.
SLOTPOOL_API int slotpool_pool_event(slotpool_pool *pool, const int32_t *ids, size_t n_ids, int publish, slotpool_lookup *out, int capacity);
// The same where misses can be served without a slot: a policy that gains by it ranks them and may refuse.
SLOTPOOL_API int slotpool_pool_event_may_refuse(slotpool_pool *pool, const int32_t *ids, size_t n_ids, int publish, slotpool_lookup *out,
                                                int capacity);
// The same for an event that is too large for the slots: it evicts nobody.
SLOTPOOL_API int slotpool_pool_pass(slotpool_pool *pool, const int32_t *ids, size_t n_ids, int publish, slotpool_lookup *out, int capacity);
// An event in two halves: who is a hit and who a miss, no slot taken; then, until the next event, the misses that the caller chooses.
SLOTPOOL_API int slotpool_pool_look_up(slotpool_pool *pool, const int32_t *ids, size_t n_ids, slotpool_lookup *out, int capacity);
// The misses of the last event without a slot, the most wanted first. Returns their number (at most `capacity` are written).
SLOTPOOL_API int slotpool_pool_rank(slotpool_pool *pool, int32_t *experts, int capacity);
// A slot for a miss of the last event: 1 and the lookup; 0 when the policy refused, no slot could be taken, or it is no such miss.
SLOTPOOL_API int slotpool_pool_admit(slotpool_pool *pool, int expert, int may_refuse, int publish, slotpool_lookup *out);
// Before the first event: the hottest experts first, shares of the events that are expected to ask for them, in [0, 1]; as many as there
// are slots get one, the first n_kept are never evicted. Returns the number of lookups (at most `capacity` are written, the hottest first),
// or -1, and nothing changes, for experts out of range or there twice, shares out of range, and a pool that has seen an event.
SLOTPOOL_API int slotpool_pool_warm(slotpool_pool *pool, const int32_t *experts, const double *shares, size_t n, int n_kept, int publish,
                                    slotpool_lookup *out, int capacity);
SLOTPOOL_API int slotpool_pool_find(const slotpool_pool *pool, int expert);
SLOTPOOL_API void slotpool_pool_publish(slotpool_pool *pool, int slot);
SLOTPOOL_API void slotpool_pool_abandon(slotpool_pool *pool, int slot);
SLOTPOOL_API int slotpool_pool_evict(slotpool_pool *pool, int expert);
SLOTPOOL_API int slotpool_pool_pin(slotpool_pool *pool, int expert);
SLOTPOOL_API void slotpool_pool_unpin(slotpool_pool *pool, int expert);

// ---- whole traces: simulator and benchmarks ----
#define SLOTPOOL_EVENT_PASSES 1     // too large for the slots
#define SLOTPOOL_EVENT_IS_PROMPT 2  // counted in the second of the two slotpool_replayed
#define SLOTPOOL_ADMIT_ALL 0        // every miss, in order of appearance
#define SLOTPOOL_ADMIT_WANTED 1     // a policy that gains by it may refuse
#define SLOTPOOL_ADMIT_NONE 2       // the slots stay as they are
// The ids of event i are ids[first[i]] to ids[first[i + 1]]. marks has a byte for every event; NULL: none is marked.
typedef struct {
    const int32_t *ids;
    const int64_t *first;
    const uint8_t *marks;
    size_t n_events;
} slotpool_events;
// In distinct experts of events. `later`: of those admitted, how many a link brought that no event waited for.
typedef struct {
    int64_t events, lookups, hits, admitted, later;
} slotpool_replayed;
// Replays events, slots published at once. out has two entries: generation and prompt. hits gets those of every event; NULL: not asked.
// 0, or -1 on an id out of range.
SLOTPOOL_API int slotpool_pool_replay(slotpool_pool *pool, const slotpool_events *events, int admission, slotpool_replayed *out, int32_t *hits);
// A link to the slots: of an event's n misses n_copied[n] are copied before use (beyond the last entry: as many as that), the others serve
// without a slot, and what the policy wants of them comes later. While slots are free everything comes at once: this is of pools that are warm.
typedef struct {
    double experts_per_event;    // that it brings for later between two events of this pool
    double experts_per_miss;     // that may be on their way for later, for each miss that is not copied; one may always be
    size_t n_events_on_the_way;  // that find an expert missing which was copied for later; 0: the next one has it
    const int32_t *n_copied;
    size_t n_counts;  // at least 1
} slotpool_link;
// Replays events as above, slots filled over the link.
SLOTPOOL_API int slotpool_pool_replay_over_link(slotpool_pool *pool, const slotpool_events *events, const slotpool_link *link, slotpool_replayed *out,
                                                int32_t *hits);
// The same events through the offline optimum, from empty slots. It counts no admissions.
SLOTPOOL_API int slotpool_belady(int n_expert, int n_slots, const slotpool_events *events, int may_refuse, slotpool_replayed *out, int32_t *hits);

// ---- the trace recorder, for tests ----
typedef struct slotpool_recorder slotpool_recorder;
typedef struct slotpool_ring slotpool_ring;

// NULL and why in `text`.
SLOTPOOL_API slotpool_recorder *slotpool_recorder_start(const char *path, char *text, size_t size);
SLOTPOOL_API slotpool_ring *slotpool_recorder_ring(slotpool_recorder *recorder, int layer, int is_chunk, int n_expert, const void *context);
SLOTPOOL_API void slotpool_ring_push(slotpool_ring *ring, uint64_t ubatch, int is_prompt, int n_used, const int32_t *ids, size_t n_ids);
SLOTPOOL_API void slotpool_ring_free(slotpool_ring *ring);
// Frees the recorder as well. 1, or 0 and why the file is not whole.
SLOTPOOL_API int slotpool_recorder_finish(slotpool_recorder *recorder, uint64_t *n_events, uint64_t *n_dropped, char *text, size_t size);

// ---- files and reads in the background, for tests ----
// Addresses, offsets and lengths are used as they are given. A file, and the memory of a read, must live until the read has ended.
typedef struct slotpool_file slotpool_file;
typedef struct slotpool_reader slotpool_reader;
typedef struct slotpool_read slotpool_read;

// NULL and why in `text` when it cannot be opened.
SLOTPOOL_API slotpool_file *slotpool_file_open(const char *path, int direct, char *text, size_t size);
SLOTPOOL_API void slotpool_file_close(slotpool_file *file);
SLOTPOOL_API size_t slotpool_file_alignment(const slotpool_file *file);
SLOTPOOL_API void slotpool_file_why_buffered(const slotpool_file *file, char *text, size_t size);
SLOTPOOL_API int slotpool_file_identity(const slotpool_file *file, uint64_t *n_bytes, int64_t *mtime_ns);
// 1, or 0 and why in `text`.
SLOTPOOL_API int slotpool_file_read(slotpool_file *file, void *to, uint64_t offset, size_t capacity, size_t needed, char *text, size_t size);
SLOTPOOL_API int slotpool_file_read_anywhere(slotpool_file *file, void *to, uint64_t offset, size_t n_bytes, char *text, size_t size);

// NULL when the system has no thread left.
SLOTPOOL_API slotpool_reader *slotpool_reader_new(int n_threads);
SLOTPOOL_API void slotpool_reader_free(slotpool_reader *reader);
// A read that can be submitted. States: 0 idle, 1 queued, 2 running, 3 done, 4 failed.
SLOTPOOL_API slotpool_read *slotpool_read_new(slotpool_file *file, void *to, uint64_t offset, size_t capacity, size_t needed);
// The same for any offset and length, through a sink that inverts every bit of the multiples of `unit` bytes that it gets.
SLOTPOOL_API slotpool_read *slotpool_read_new_inverted(slotpool_file *file, void *to, uint64_t offset, size_t n_bytes, size_t unit);
SLOTPOOL_API void slotpool_read_free(slotpool_read *read);
SLOTPOOL_API int slotpool_read_state(const slotpool_read *read);
SLOTPOOL_API void slotpool_read_error(const slotpool_read *read, char *text, size_t size);
SLOTPOOL_API void slotpool_reader_submit(slotpool_reader *reader, slotpool_read *read);
SLOTPOOL_API int slotpool_reader_wait(slotpool_reader *reader, slotpool_read *read);
SLOTPOOL_API void slotpool_reader_cancel(slotpool_reader *reader, slotpool_read *read);

// ---- the engine's own layouts, for tests ----
// Repacks 16 rows of 2 blocks.
typedef void (*slotpool_repack_fn)(const uint8_t *rows, uint8_t *to);
// Learns what `engine` does and does the same with `n_rows` rows of `n_blocks` blocks. Rows that belong together, or 0: it cannot be learned.
SLOTPOOL_API size_t slotpool_interleave(slotpool_repack_fn engine, size_t block_bytes, const uint8_t *rows, size_t n_rows, size_t n_blocks,
                                        uint8_t *to);

// ---- the probe: speeds of this machine, through the functions of one ggml ----
typedef struct slotpool_probe slotpool_probe;
typedef struct slotpool_probe_work slotpool_probe_work;
typedef struct slotpool_probe_filled slotpool_probe_filled;

enum { SLOTPOOL_PROBE_READ, SLOTPOOL_PROBE_MULTIPLY, SLOTPOOL_PROBE_NODES, SLOTPOOL_PROBE_COPY };

// What is measured (core/probe/work.h); fields that a kind does not need are 0.
typedef struct {
    int32_t kind, n_threads;
    int32_t type, n_matrices, n_used;  // multiply: matrices [ne0, ne1] of a type; experts per node, or 0 for plain weights
    int32_t to_host, pinned;           // copy
    int32_t repacked;                  // multiply: as llama.cpp would repack them, refused where it would not
    int64_t ne0, ne1;
    uint64_t bytes;       // read: of memory; copy: of host memory
    uint64_t slab_bytes;  // copy: at a time
    char device[64], type_name[64];
} slotpool_probe_spec;

// NULL and why in `text` when the ggml that holds `address` is not the one the core was written for. Must outlive its works.
SLOTPOOL_API slotpool_probe *slotpool_probe_new(const void *address, char *text, size_t size);
SLOTPOOL_API void slotpool_probe_free(slotpool_probe *probe);
// NULL and why in `text` when it cannot be set up.
SLOTPOOL_API slotpool_probe_work *slotpool_probe_work_new(const slotpool_probe *probe, const slotpool_probe_spec *spec, char *text, size_t size);
// The same for reads of a file, at random places of [begin, end); `why_buffered` gets why they are not direct, empty when they are.
SLOTPOOL_API slotpool_probe_work *slotpool_probe_file_new(const char *path, uint64_t begin, uint64_t end, uint64_t slab_bytes, int depth,
                                                          char *why_buffered, char *text, size_t size);
// Whether llama.cpp would repack the weights of a multiply for that device.
SLOTPOOL_API int slotpool_probe_repacks(const slotpool_probe *probe, const slotpool_probe_spec *spec);
SLOTPOOL_API void slotpool_probe_work_free(slotpool_probe_work *work);
// Repeats it for at least so long: bytes (of nodes: their number) and the time that they took. 0 where it failed.
SLOTPOOL_API int slotpool_probe_repeat(slotpool_probe_work *work, uint64_t least_ns, uint64_t *amount, uint64_t *ns);
// Takes memory of a device and writes to it; NULL when it has none left.
SLOTPOOL_API slotpool_probe_filled *slotpool_probe_fill(const slotpool_probe *probe, const char *device, uint64_t n_bytes);
SLOTPOOL_API void slotpool_probe_drop(slotpool_probe_filled *filled);
// 0 for no such device. Whether it has a kind of host memory of its own (pinned).
SLOTPOOL_API int slotpool_probe_properties(const slotpool_probe *probe, const char *device, int *has_host_memory);

#ifdef __cplusplus
}
#endif
