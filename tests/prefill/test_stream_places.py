"""Where streamed prompts take their room from, what they leave behind in the pool, and contexts without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from slotpool.native import DeviceMemory, GroupCounts
from slotpool.plan import Plan
from testkit import syn
from testkit.cases import layout, random_tokens
from testkit.oracle import (
    ON_DEVICE,
    Batch,
    Bits,
    DeviceProcess,
    Forget,
    Oracle,
    Setup,
    Steps,
    assert_same_bits,
    plan_on,
    pooled,
    steps_of,
    total,
)
from testkit.oracle.devices import chaos

ModelFile = Callable[[syn.Spec], Path]

SPEC = layout("qwen3moe", n_layer=4)
SETUP = replace(ON_DEVICE, n_ubatch=64, n_ctx=1024)
PLAIN = replace(SETUP, n_gpu_layers=0, tensor_split=())
SLAB = 3 * 256 * 256 // 256 * 176  # gate, up and down of one expert, Q5_K: 176 bytes per 256 values
TAIL = 3 * 512  # behind the slots of a layer's three tensors
STAGING = 16 * SLAB + TAIL
PROMPT = Batch(random_tokens(64))
SINGLES = steps_of(*((token,) for token in random_tokens(12, seed=9)))


@dataclass(frozen=True)
class Seen:
    bits: list[Bits]
    counts: list[GroupCounts]
    device: DeviceMemory
    hazards: int


def run_with(path: Path, plan: Plan, setup: Setup, steps: Steps, spare: int = -1) -> Seen:
    """In a process with devices: what is free when slots are allocated is `spare` bytes; -1: plenty."""
    chaos().reset()
    try:
        with pooled(path, plan, setup) as model:
            if spare >= 0:
                chaos().set(0, total_bytes=chaos().counters(0).bytes_now + spare)
            bits = model.run(steps)
            (device,) = (one for one in model.session.devices() if one.name == "CHAOS0")
            return Seen(bits, model.counts(), device, chaos().counters(0).hazards)
    finally:
        chaos().set(total_bytes=2**34)


# ---- room ----


def test_staging_is_a_layer_and_comes_out_of_the_budget(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    path, steps = model_file(SPEC), (PROMPT, *SINGLES)
    budget = STAGING + 4 * (7 * SLAB + TAIL)
    run = lazy.call(run_with, path, plan_on(path, 12, budget=budget, prefill="stream"), SETUP, steps)
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, steps))
    assert [group.slots for group in run.counts] == [7] * 4
    assert (run.device.staging, run.device.taken) == (STAGING, STAGING + 4 * 7 * SLAB)
    assert total(run.counts)[2] == 0


def test_slots_that_a_token_needs_come_before_staging(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """Room for both there is not: prompts are computed by the CPU then, are counted as refused, and the pool works."""
    path, steps = model_file(SPEC), (PROMPT, *SINGLES, Forget(), PROMPT)
    budget = STAGING + 4 * (3 * SLAB + TAIL)
    run = lazy.call(run_with, path, plan_on(path, 12, budget=budget, prefill="stream"), SETUP, steps)
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, steps))
    generated, prompted, refused = total(run.counts)
    assert (run.device.staging, prompted.events, refused) == (0, 0, 2 * 4)
    assert generated.hits > 0
    assert [group.slots for group in run.counts] == [7] * 4


def test_a_device_that_is_full_leaves_prompts_to_the_cpu(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    path, steps = model_file(SPEC), (PROMPT, *SINGLES)
    run = lazy.call(run_with, path, plan_on(path, 12, prefill="stream"), SETUP, steps, SLAB)
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, steps))
    assert (run.device.staging, total(run.counts)[1].events) == (0, 0)


# ---- what is left behind ----


def test_generation_finds_after_a_prompt_what_it_had_before(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """The same tokens with a prompt between and without: the same hits, misses and evictions of generation, event by event."""
    path = model_file(SPEC)
    fill, later = (*SINGLES, *SINGLES), SINGLES[::-1]
    plan = plan_on(path, 6, prefill="stream")
    without = lazy.call(run_with, path, plan, SETUP, (*fill, Forget(), *later))
    between = lazy.call(run_with, path, plan, SETUP, (*fill, Forget(), PROMPT, Batch(PROMPT.tokens[:40]), Forget(), *later))
    assert [group.generation for group in between.counts] == [group.generation for group in without.counts]
    assert [group.evicted for group in between.counts] == [group.evicted for group in without.counts]
    assert total(between.counts)[1].hits > 0


def test_turns_copy_what_is_not_in_slots(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """A chat: the first prompt fills the slots, every later turn copies (distinct - resident) slabs, whatever was generated between."""
    path = model_file(SPEC)
    turn: Steps = (PROMPT, *SINGLES[:4])
    counts = [lazy.call(run_with, path, plan_on(path, 10, prefill="stream"), SETUP, turn * n).counts for n in (1, 2, 3)]
    copied = [total(one)[1].bytes_copied for one in counts]
    distinct = total(counts[0])[1].lookups
    assert copied[0] == distinct * SLAB  # nobody was there
    assert copied[1] - copied[0] < copied[0] // 2
    for one in counts:
        prompted = total(one)[1]
        assert prompted.bytes_copied == (prompted.lookups - prompted.hits) * SLAB
        assert prompted.bytes_saved == prompted.hits * SLAB


def test_a_pool_of_all_experts_serves_prompts_itself(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    path, steps = model_file(SPEC), (PROMPT, PROMPT)
    run = lazy.call(run_with, path, plan_on(path, "all", prefill="stream"), SETUP, steps)
    assert_same_bits(run.bits, oracle.logits(path, PLAIN, steps))
    prompted = total(run.counts)[1]
    assert (prompted.misses, prompted.empty_copies) == (prompted.hits, 4)  # the second prompt needs no copy in any layer


# ---- contexts ----


def two_contexts(path: Path, plan: Plan, steps: Steps) -> tuple[list[Bits], list[Bits], list[GroupCounts], int]:
    chaos().reset()
    with pooled(path, plan, SETUP) as model:
        other = model.context()
        first, second = [], []
        for step in steps:
            first += model.run((step,))
            second += other.run((step,))
        return first, second, model.counts(), chaos().counters(0).hazards


def test_a_context_without_pools_streams_too(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    path, steps = model_file(SPEC), (PROMPT, *SINGLES[:3], Forget(), PROMPT)
    plan = plan_on(path, 6, prefill="stream")
    for contexts, n_events in (("first", 2 * 4), ("all", 2 * 2 * 4)):
        first, second, counts, hazards = lazy.call(two_contexts, path, replace(plan, contexts=contexts), steps)
        assert_same_bits(first, oracle.logits(path, PLAIN, steps))
        assert_same_bits(second, oracle.logits(path, PLAIN, steps))
        assert (total(counts)[1].events, hazards) == (n_events, 0)
