"""Each rule of the chaos device is broken on purpose, by a program that uses ggml's public functions alone; the device must notice."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

Scenario = Callable[..., dict[str, str]]
LAZY, THREADED = {"threaded": 0}, {"threaded": 1}


@pytest.mark.parametrize("mode", [LAZY, THREADED], ids=["lazy", "threaded"])
def test_work_that_was_waited_for_is_right_and_no_hazard(scenario: Scenario, mode: dict[str, int]) -> None:
    said = scenario("read_after_waiting", **mode)
    assert (said["value"], said["hazards"], said["failures"]) == ("2", "0", "0")


def test_result_that_is_read_too_early_is_poison_and_a_hazard(scenario: Scenario) -> None:
    said = scenario("read_too_early")
    assert said["value"] in ("nan", "-nan")
    assert (said["afterwards"], said["hazards"]) == ("2", "1")
    assert "read of" in said["first_hazard"]
    assert "graph of 1 nodes on CHAOS0" in said["first_hazard"]


def test_result_that_is_read_too_early_is_only_a_hazard_without_poison(scenario: Scenario) -> None:
    said = scenario("read_too_early", poison=0)
    assert said["value"] not in ("nan", "-nan")
    assert said["hazards"] == "1"


def test_input_that_is_overwritten_before_it_was_used_changes_the_result_and_is_a_hazard(scenario: Scenario) -> None:
    said = scenario("input_changed_too_early")
    assert (said["value"], said["hazards"]) == ("10", "1")


def test_two_readers_are_no_hazard(scenario: Scenario) -> None:
    said = scenario("input_read_while_queued")
    assert (said["value"], said["hazards"]) == ("1", "0")


def test_stream_that_waits_for_no_other_reads_poison_and_is_a_hazard(scenario: Scenario) -> None:
    said = scenario("second_stream_does_not_wait")
    assert said["value"] in ("nan", "-nan")
    assert said["hazards"] == "1"


def test_device_memory_is_no_host_memory(scenario: Scenario) -> None:
    said = scenario("host_touches_device_memory", expected=-signal.SIGSEGV)
    assert said == {"about_to": "touch"}


def test_source_of_an_asynchronous_write_is_read_when_it_is_executed(scenario: Scenario) -> None:
    assert scenario("source_of_a_write_changed_too_early")["value"] == "4"


def test_destination_of_an_asynchronous_read_is_poison_until_then(scenario: Scenario) -> None:
    said = scenario("destination_read_too_early")
    assert said["value"] in ("nan", "-nan")
    assert said["afterwards"] == "1"


def test_freeing_what_queued_work_needs_is_a_hazard_and_no_crash(scenario: Scenario) -> None:
    said = scenario("buffer_freed_while_queued")
    assert said["hazards"] == "1"
    assert "free of a buffer of CHAOS0" in said["first_hazard"]


@pytest.mark.parametrize("poison", [0, 1])
def test_fresh_memory_is_poison(scenario: Scenario, poison: int) -> None:
    said = scenario("memory_begins_poisoned", poison=poison)
    assert (said["value"] in ("nan", "-nan")) == bool(poison)


@pytest.mark.parametrize("mode", [LAZY, THREADED], ids=["lazy", "threaded"])
def test_poison_never_touches_what_queued_work_still_needs(scenario: Scenario, mode: dict[str, int]) -> None:
    said = scenario("old_bytes_are_kept_for_queued_work", **mode)
    assert (said["value"], said["before_the_write"], said["hazards"]) == ("4", "4", "0")


def test_buffer_type_is_known_by_its_fields(scenario: Scenario) -> None:
    said = scenario("type_is_known_by_its_fields")
    assert {name: said[name] for name in ("own", "copy", "host", "other", "is_host", "type_of_buffer")} == {
        "own": "1",
        "copy": "1",
        "host": "0",
        "other": "0",
        "is_host": "0",
        "type_of_buffer": "1",
    }


def test_tensor_on_another_device_is_a_failed_graph(scenario: Scenario) -> None:
    said = scenario("tensor_on_another_device")
    assert (said["is_done"], said["failures"]) == ("0", "1")
    assert "in memory of CHAOS0, found it elsewhere" in said["error"]


def test_copy_between_devices_goes_over_both_links(scenario: Scenario) -> None:
    said = scenario("copy_between_devices")
    assert (said["value"], said["out_n"]) == ("9", "1")
    assert said["in_n"] == "2"  # one fill before it


def test_index_out_of_range_fails_the_stream_and_not_the_process(scenario: Scenario) -> None:
    said = scenario("index_out_of_range")
    assert (said["first"], said["second"], said["failures"]) == ("1", "0", "1")
    assert "Expected indices in range" in said["error"]


def test_allocations_fail_as_asked_and_give_no_buffer(scenario: Scenario) -> None:
    said = scenario("allocations_fail")
    assert {name: value for name, value in said.items() if name.startswith("got")} == {
        "got_1001": "0",
        "got_1000": "1",
        "got_2000": "1",
        "got_1": "0",
        "got_2001": "0",
        "got_1999": "1",
    }
    assert said["failed"] == "3"


def test_writing_an_expert_is_a_hazard_where_queued_work_asks_for_that_one(scenario: Scenario) -> None:
    said = scenario("experts_written_while_queued")
    assert [said[name] for name in ("blocking_0", "blocking_1", "async_0", "async_1")] == ["0", "1", "1", "2"]
    assert "write of" in said["first_hazard"]


def test_signature_tells_device_and_shape(scenario: Scenario) -> None:
    said = scenario("signature_tells_device_and_shape")
    assert (said["device_0_tokens_3_k_1"], said["device_1"], said["tokens_1"], said["k_3"]) == ("1", "0", "0", "0")


def test_bytes_of_experts_are_those_of_distinct_ones(scenario: Scenario) -> None:
    said = scenario("signature_tells_device_and_shape")
    assert (said["expert_bytes"], said["expert_rows"]) == (str(2 * 64 * 8 * 4), "6")  # two calls, one expert, three rows


def test_declared_time_is_taken(scenario: Scenario) -> None:
    said = {name: float(value) for name, value in scenario("time_is_taken").items() if "." in value}
    assert said["transfer"] >= 0.01
    assert said["two_transfers_at_once"] >= 0.02  # they take turns
    assert said["latency"] >= 0.02
    assert said["experts"] >= 0.02048
    assert said["node"] >= 0.03


def test_cpu_takes_its_declared_time_for_a_single_call(scenario: Scenario) -> None:
    said = scenario("cpu_takes_time")
    assert float(said["seconds"]) >= 0.02048
    assert float(said["switched_off"]) < float(said["seconds"])


@pytest.mark.parametrize("mode", [LAZY, THREADED], ids=["lazy", "threaded"])
def test_threads_with_streams_of_their_own_do_not_disturb_each_other(scenario: Scenario, mode: dict[str, int]) -> None:
    said = scenario("many_threads", **mode)
    assert (said["wrong"], said["hazards"], said["failures"], said["graphs"]) == ("0", "0", "0", "80")


@pytest.mark.parametrize("mode", [LAZY, THREADED], ids=["lazy", "threaded"])
def test_two_threads_may_wait_for_one_stream(scenario: Scenario, mode: dict[str, int]) -> None:
    said = scenario("several_wait_for_one", **mode)
    assert (said["wrong"], said["hazards"]) == ("0", "0")


def test_ranges_are_sets_of_addresses(scenario: Scenario) -> None:
    assert scenario("ranges_are_sets")["wrong"] == "0"
