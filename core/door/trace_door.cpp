// The C interface over the trace recorder, for tests: the rest of the core uses it directly.
#include <memory>

#include "door/text.h"
#include "slotpool.h"
#include "trace/recorder.h"

using namespace slotpool;

struct slotpool_recorder {
    std::shared_ptr<trace::Recorder> recorder;
};

struct slotpool_ring {
    std::shared_ptr<trace::Ring> ring;
};

slotpool_recorder *slotpool_recorder_start(const char *path, char *text, size_t size) {
    std::string error;
    auto recorder = trace::Recorder::start(path, error);
    door::copy_text(error, text, size);
    return recorder ? new slotpool_recorder{std::move(recorder)} : nullptr;
}

slotpool_ring *slotpool_recorder_ring(slotpool_recorder *recorder, int layer, int is_chunk, int n_expert, const void *context) {
    return new slotpool_ring{recorder->recorder->add_ring(layer, is_chunk != 0, n_expert, context)};
}

void slotpool_ring_push(slotpool_ring *ring, uint64_t ubatch, int is_prompt, int n_used, const int32_t *ids, size_t n_ids) {
    ring->ring->push(ubatch, is_prompt != 0, n_used, {ids, ids + n_ids});
}

void slotpool_ring_free(slotpool_ring *ring) { delete ring; }

int slotpool_recorder_finish(slotpool_recorder *recorder, uint64_t *n_events, uint64_t *n_dropped, char *text, size_t size) {
    const trace::Totals totals = recorder->recorder->finish();
    delete recorder;
    *n_events = totals.n_events;
    *n_dropped = totals.n_dropped;
    door::copy_text(totals.error, text, size);
    return totals.error.empty() ? 1 : 0;
}
