// The scenarios, one function each; scenarios.cpp runs them by name.
#pragma once

#include "bench.h"

extern const Control *g_control;

void read_after_waiting();
void read_too_early();
void input_changed_too_early();
void input_read_while_queued();
void second_stream_does_not_wait();
void host_touches_device_memory();
void source_of_a_write_changed_too_early();
void destination_read_too_early();
void buffer_freed_while_queued();
void memory_begins_poisoned();
void old_bytes_are_kept_for_queued_work();
void type_is_known_by_its_fields();
void tensor_on_another_device();
void copy_between_devices();
void index_out_of_range();
void allocations_fail();
void experts_written_while_queued();
void signature_tells_device_and_shape();
void time_is_taken();
void cpu_takes_time();
void many_threads();
void several_wait_for_one();
void ranges_are_sets();
