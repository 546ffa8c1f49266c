"""What a device's budget means when a context warms up first, and when a second context follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import llama_cpp

from slotpool import model as files
from slotpool import plan as plans
from slotpool.native import DeviceMemory, GroupCounts
from testkit import syn
from testkit.chaos.process import process
from testkit.oracle import Batch, Setup, pooled, steps_of

SPEC = syn.Spec()
SETUP = Setup(n_gpu_layers=99)
STEPS = steps_of([1, 2], [3], [4], [5])


def test_a_warm_up_that_asks_for_every_expert_leaves_the_pools_to_the_tokens(model_file: Callable[[syn.Spec], Path]) -> None:
    with process({}) as beside:
        counts, reasons = beside.submit(warmed_up, model_file(SPEC)).result()
    assert reasons == ["", ""]
    for group in counts:
        assert SPEC.n_expert_used <= group.slots < SPEC.n_expert
        assert group.generation.lookups > 0


def test_contexts_of_a_session_share_the_budget_of_a_device(model_file: Callable[[syn.Spec], Path]) -> None:
    with process({}) as beside:
        alone, both = beside.submit(two_contexts, model_file(SPEC)).result()
    assert alone.budget == both.budget
    assert both.budget is not None
    assert alone.taken < both.taken <= both.budget


def warmed_up(path: Path) -> tuple[list[GroupCounts], list[str]]:
    """In a process with a device that has room for 10 of 16 slots."""
    with pooled(path, _plan(path, 10), SETUP) as run:
        llama_cpp.llama_set_warmup(run.first.handle, True)
        run.first.decode(Batch((1, 2)))
        llama_cpp.llama_set_warmup(run.first.handle, False)
        run.run(STEPS)
        return run.counts(), [run.session.off_reason(group) for group in range(len(run.plan.groups))]


def two_contexts(path: Path) -> tuple[DeviceMemory, DeviceMemory]:
    """In a process with a device: its memory after one context, and after another one as well. The first is content with 8 slots of 14."""
    small = _plan(path, 14)
    groups = tuple(replace(group, slots=8) for group in small.groups)
    with pooled(path, replace(small, groups=groups), SETUP) as run:
        run.run(STEPS)
        alone = run.session.devices()[-1]
        run.context().run(STEPS)
        return alone, run.session.devices()[-1]


def _plan(path: Path, n_slots_of_budget: int) -> plans.Plan:
    made = plans.make(files.read(path), SPEC.n_expert, poison=True)
    budget = n_slots_of_budget * sum(tensor.slab_bytes for tensor in files.read(path).experts)
    groups = tuple(replace(group, device="auto") for group in made.groups)
    return replace(made, devices=(plans.PlannedDevice("CHAOS0", SPEC.n_expert, budget, 0),), misses="cpu", is_settled=True, groups=groups)
