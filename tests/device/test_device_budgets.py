"""Memory of devices: what is asked for, what there is, and what stays free. Tokens never depend on it, stats say what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from slotpool.native import GroupCounts
from slotpool.plan import Plan
from testkit import syn
from testkit.cases import layout, random_tokens
from testkit.chaos import Counters
from testkit.oracle import LAST, ON_DEVICE, Batch, Bits, DeviceProcess, Oracle, Setup, Steps, assert_same_bits, plan_on, pooled, steps_of
from testkit.oracle.devices import chaos

ModelFile = Callable[[syn.Spec], Path]

MIB = 1 << 20
SPEC = layout("qwen3moe", n_layer=4)
SETUP = replace(ON_DEVICE, n_ubatch=16)
PLAIN = replace(SETUP, n_gpu_layers=0, tensor_split=())
STEPS: Steps = (*steps_of((1,), (2,), (1,)), Batch(random_tokens(40), outputs=LAST), *steps_of((1,), (2, 3), (7,), (1,)))
N_EXPERT = 16
SLAB = 3 * 256 * 256 // 256 * 176  # gate, up and down of one expert, Q5_K: 176 bytes per 256 values
TAIL = 3 * 512  # behind the slots of a layer's three tensors
IDS = 4096  # slot ids of a call


@dataclass(frozen=True)
class Seen:
    """`before` is what a context without slots takes, `with_slots` the most after the first step, in bytes; `counters` are of the end."""

    bits: list[Bits]
    counts: list[GroupCounts]
    off: list[str]
    before: list[int]
    with_slots: list[int]
    counters: list[Counters]


def small(path: Path, plan: Plan, setup: Setup, steps: Steps, knobs: Sequence[Mapping[str, float]], spare: Sequence[int]) -> Seen:
    """In a process with devices: what is free when slots are allocated is `spare` bytes, by device; -1: plenty."""
    devices = range(int(chaos().get("devices")))
    try:
        with pooled(path, plan, setup) as model:
            before = [chaos().counters(device).bytes_now for device in devices]
            for device, more in enumerate(knobs):
                chaos().set(device, **more)
            for device, n_bytes in enumerate(spare):
                if n_bytes >= 0:
                    chaos().set(device, total_bytes=before[device] + n_bytes)
            bits = model.run(steps[:1])
            with_slots = [chaos().counters(device).bytes_peak for device in devices]
            bits += model.run(steps[1:])
            off = [model.session.off_reason(group) for group in range(len(plan.groups))]
            return Seen(bits, model.counts(), off, before, with_slots, [chaos().counters(device) for device in devices])
    finally:
        chaos().set(total_bytes=2**34, max_buffer_bytes=-1, fail_after_bytes=-1, fail_above_bytes=-1)
        chaos().reset()


def slots_of(seen: Seen) -> list[int]:
    return [group.slots for group in seen.counts]


@pytest.mark.parametrize("misses", ["copy", "cpu", "frozen"])
@pytest.mark.parametrize("spare_slots", [4 * 16, 4 * 12, 4 * 8 + 2, 4 * 4])
def test_slots_are_scaled_down_evenly_to_what_is_free_less_the_rail(
    spare_slots: int, misses: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess
) -> None:
    """P01: everything else of the model is there before the slots; the rail stays free whatever was asked for."""
    path, rail = model_file(SPEC), 3 * MIB
    spare = rail + IDS + spare_slots * SLAB + 4 * TAIL
    run = lazy.call(small, path, plan_on(path, "all", misses=misses, rail=rail), SETUP, STEPS, ({},), (spare,))
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    share, over = divmod(spare_slots, 4)
    assert slots_of(run) == [share + (layer < over) for layer in range(4)]
    assert run.off == [""] * 4
    assert run.with_slots[0] == run.before[0] + spare - rail
    assert run.counters[0].failed_allocations == 0


@pytest.mark.parametrize("n_slots", [10, 4])
def test_a_budget_bounds_what_is_asked_for(n_slots: int, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """More is asked for than the budget holds: every layer gets the same, and nothing above it is taken."""
    path, budget = model_file(SPEC), 4 * (n_slots * SLAB + TAIL)
    run = lazy.call(small, path, plan_on(path, 16, budget=budget), SETUP, STEPS, ({},), (-1,))
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    assert (slots_of(run), run.off) == ([n_slots] * 4, [""] * 4)
    assert run.with_slots[0] == run.before[0] + budget + IDS


@pytest.mark.parametrize("misses", ["copy", "cpu", "frozen"])
@pytest.mark.parametrize("n_slots", [0, 1, 3])
def test_slots_that_one_token_cannot_use_are_not_taken(
    n_slots: int, misses: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess
) -> None:
    """Less than a token uses in every layer: no slots at all, with the reason, and the memory stays free."""
    path, budget = model_file(SPEC), 4 * (n_slots * SLAB + TAIL)
    run = lazy.call(small, path, plan_on(path, 16, misses=misses, budget=budget), SETUP, STEPS, ({},), (-1,))
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    assert [(group.generation + group.prompt).lookups for group in run.counts] == [0] * 4
    expected = f"CHAOS0 has room for {n_slots} slots, a token uses 4 ("
    assert [reason.startswith(expected) for reason in run.off] == [True] * 4
    assert run.with_slots[0] == run.before[0] + IDS


def shrinking(path: Path, plan: Plan, answers: Sequence[int], steps: Steps) -> Seen:
    with pooled(path, plan, SETUP) as model:
        before = [chaos().counters(0).bytes_now]
        chaos().answer_free(answers)
        bits = model.run(steps)
        off = [model.session.off_reason(group) for group in range(len(plan.groups))]
        seen = Seen(bits, model.counts(), off, before, [], [chaos().counters(0)])
    chaos().answer_free([])
    return seen


@pytest.mark.parametrize("misses", ["copy", "cpu"])
def test_free_memory_that_shrinks_between_two_questions(misses: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """Slots follow one answer, not the sum of several: the first is what counts, and nothing more is taken."""
    path = model_file(SPEC)
    answers = [4 * (8 * SLAB + TAIL), 4 * (2 * SLAB + TAIL), 0, 0, 0, 0]
    run = lazy.call(shrinking, path, plan_on(path, "all", misses=misses), answers, STEPS)
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    assert slots_of(run) == [8] * 4


def test_slots_of_a_tensor_fit_the_largest_buffer(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """A device that promises no buffer above nine experts of a tensor gets nine slots."""
    path = model_file(SPEC)
    run = lazy.call(small, path, plan_on(path, "all"), SETUP, STEPS, ({"max_buffer_bytes": 9 * SLAB // 3 + 512 + 100},), (-1,))
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    assert slots_of(run) == [9] * 4
    assert run.off == [""] * 4


@pytest.mark.parametrize("misses", ["copy", "cpu", "auto", "frozen"])
@pytest.mark.parametrize("n_groups", [0, 1, 3])
def test_an_allocation_that_fails_turns_its_layer_off_with_a_reason(
    n_groups: int, misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    """The device says that there is memory and has none after so many layers: the CPU computes the others, the tokens are the same."""
    path = model_file(SPEC)
    room = n_groups * (16 * SLAB + TAIL) + IDS
    run = devices.call(failing, path, plan_on(path, "all", misses=misses), STEPS, room)
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    assert [bool(reason) for reason in run.off] == [False] * n_groups + [True] * (4 - n_groups)
    for reason in run.off[n_groups:]:
        assert "CHAOS0 has no such memory. Try fewer slots" in reason
    assert [(group.generation + group.prompt).lookups > 0 for group in run.counts] == [True] * n_groups + [False] * (4 - n_groups)


def failing(path: Path, plan: Plan, steps: Steps, room: int) -> Seen:
    with pooled(path, plan, SETUP) as model:
        chaos().set(0, fail_after_bytes=chaos().counters(0).bytes_given + room)
        try:
            bits = model.run(steps)
            off = [model.session.off_reason(group) for group in range(len(plan.groups))]
            return Seen(bits, model.counts(), off, [], [], [chaos().counters(0)])
        finally:
            chaos().set(0, fail_after_bytes=-1)


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss"])
def test_a_device_without_any_memory_left_fails_the_request_or_serves_it_right(
    arch: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess
) -> None:
    """No room for a slot, for slot ids or for biases: every layer is off, the CPU computes all of it."""
    path = model_file(replace(SPEC, arch=arch))
    run = lazy.call(failing, path, plan_on(path, "all", misses="cpu"), STEPS, 0)
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    assert all(run.off)


def long_run(path: Path, plan: Plan, warm: Steps, steps: Steps) -> tuple[list[Bits], list[tuple[int, int, int]], list[int]]:
    with pooled(path, plan, replace(SETUP, n_ctx=1024)) as model:
        bits, seen = model.run(warm), []
        for step in steps:
            bits += model.run((step,))
            counted = chaos().counters(0)
            seen.append((counted.allocations, counted.frees, counted.bytes_now))
        return bits, seen, [group.slots for group in model.counts()]


@pytest.mark.parametrize("misses", ["copy", "cpu"])
def test_nothing_is_allocated_over_500_steps(misses: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """R33: with a prompt of three ubatches in the middle, and a cache that grows. Slots stay, and so does everything else."""
    path = model_file(replace(SPEC, n_layer=2, n_ctx=1024))
    warm = (*steps_of((1,), (2,)), Batch(random_tokens(48), outputs=LAST), *steps_of((3,)))
    single = tuple(Batch((token,)) for token in random_tokens(250, 5))
    steps = (*single, Batch(random_tokens(48, 9), outputs=LAST), *single)
    bits, seen, slots = lazy.call(long_run, path, plan_on(path, 6, misses=misses), warm, steps)
    assert_same_bits(bits, oracle.logits(path, replace(PLAIN, n_ctx=1024), warm + steps))
    assert slots == [6, 6]
    assert len(set(seen)) == 1, sorted(set(seen))


@pytest.mark.parametrize("misses", ["copy", "cpu"])
def test_two_devices_with_unequal_memory_keep_to_their_own(misses: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """P04: the budget of one says nothing about the other, and no layer moves."""
    path = model_file(SPEC)
    setup = replace(SETUP, tensor_split=(0.6, 0.4))
    plan = plan_on(path, "all", ("CHAOS0", "CHAOS1"), misses=misses, rail=(0, MIB))
    spare = (IDS + 3 * (6 * SLAB + TAIL) + 64 * 1024, MIB + IDS + 11 * SLAB + TAIL)  # something for graphs of prompts that no longer fit
    run = lazy.call(small, path, plan, setup, STEPS, ({}, {}), spare)
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    assert [(group.device, group.slots) for group in run.counts] == [("CHAOS0", 6)] * 3 + [("CHAOS1", 11)]


@pytest.mark.parametrize("misses", ["copy", "cpu"])
def test_a_device_with_zero_slots_is_left_alone(misses: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """P04, `--slots 16,0`: the layers of the second device are as llama.cpp likes them."""
    path = model_file(SPEC)
    plan = plan_on(path, (16, 0), ("CHAOS0", "CHAOS1"), misses=misses)
    run = lazy.call(small, path, plan, replace(SETUP, tensor_split=(0.6, 0.4)), STEPS, ({}, {}), (-1, -1))
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, STEPS))
    assert [(group.generation + group.prompt).lookups > 0 for group in run.counts] == [True] * 3 + [False]
