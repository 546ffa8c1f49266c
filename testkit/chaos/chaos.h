// The control interface of the chaos device: what tests reach it by. Every function may be called from any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CHAOS_API __attribute__((visibility("default")))
#define CHAOS_ALL_DEVICES (-1)

// Sets one knob (knobs.h lists them) of one device or of all. 0, or -1 for an unknown knob, a device that is not there or a value
// out of range; chaos_error() then says which.
CHAOS_API int chaos_set(int device, const char *knob, double value);
CHAOS_API double chaos_get(int device, const char *knob);
// What the device says when asked for free memory: these answers one after the other, then the truth.
CHAOS_API int chaos_answer_free(int device, const uint64_t *answers, size_t n_answers);
// Number of counters and their names (counters.h), and their values now. A reset keeps bytes_now.
CHAOS_API size_t chaos_n_counters(void);
CHAOS_API const char *chaos_counter_name(size_t index);
CHAOS_API int chaos_counters(int device, uint64_t *values, size_t n_values);
CHAOS_API void chaos_reset(void);
// Texts: at most `size` bytes with the final zero; the length of the whole text. Empty when there is none.
CHAOS_API size_t chaos_first_hazard(char *text, size_t size);
CHAOS_API size_t chaos_error(char *text, size_t size);
// One line per computed node while the knob log_nodes has room: graph, op, name of the node, tokens, separated by tabs.
CHAOS_API size_t chaos_log(int device, char *text, size_t size);
// The bits that a signed result has changed in the last place: one byte, 0 or 1, per element of a row.
CHAOS_API void chaos_signature(int device, int64_t n_tokens, int64_t k, uint8_t *bits, size_t n_bits);
// 1 once ggml has the devices.
CHAOS_API int chaos_is_registered(void);

#ifdef __cplusplus
}
#endif
