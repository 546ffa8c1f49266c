"""The whole claim about a pooled run in one call: the same bits as plain llama.cpp, and exactly the numbers of the reference pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slotpool.native import GroupCounts
from slotpool.plan import Plan

from .compare import assert_same_bits
from .devices import ON_DEVICE, DeviceProcess, DeviceRun, with_homes
from .expect import expected_counts
from .plain import Oracle
from .pooled import pooled
from .script import Setup, Steps


def check_pooled(oracle: Oracle, path: Path, plan: Plan, steps: Steps, setup: Setup | None = None) -> list[GroupCounts]:
    """Runs the steps plain and pooled; AssertionError when a logit or a counter of any group differs. Returns the counters."""
    setup = setup or Setup()
    plain = oracle.logits(path, setup, steps)
    expected = expected_counts(plan, oracle.routing(path, setup, steps))
    with pooled(path, plan, setup) as model:
        assert_same_bits(model.run(steps), plain)
        counts = model.counts()
    assert counts == expected
    return counts


def check_on_devices(
    oracle: Oracle,
    process: DeviceProcess,
    path: Path,
    plan: Plan,
    steps: Steps,
    setup: Setup = ON_DEVICE,
    homes: Sequence[str] = (),
) -> DeviceRun:
    """The same claim about slots on devices, and what the devices say of it; `homes` names the device of each group of an `auto` plan.

    Bits of plain llama.cpp on the CPU; counters of the reference pool, or, where misses go by what was measured, counters that add up; as
    many bytes of weights to the devices as the counters say; no hazard, no failure, no group off.
    """
    plain = replace(setup, n_gpu_layers=0, tensor_split=(), placed=())
    run = process.run(path, plan, setup, steps)
    assert_same_bits(run.bits, oracle.logits(path, plain, steps))
    assert run.hazard == ""
    assert [(device.hazards, device.failures) for device in run.counters] == [(0, 0)] * len(run.counters)
    assert run.off == [""] * len(plan.groups)
    homely = with_homes(plan, homes) if homes else plan
    if plan.misses != "auto" and plan.is_settled:
        assert run.counts == expected_counts(homely, oracle.routing(path, plain, steps))
    assert_adds_up(run.counts, homely)
    if plan.devices:
        assert bytes_to_weights(run) == sum((one.generation + one.prompt).bytes_copied + one.warmed * one.slab_bytes for one in run.counts)
    return run


def assert_adds_up(counts: Sequence[GroupCounts], plan: Plan) -> None:
    """What is true of counters however misses were served."""
    assert [(group.layer, group.pass_, group.device) for group in counts] == [(g.layer, g.pass_, g.device) for g in plan.groups]
    for group in counts:
        for phase in (group.generation, group.prompt):
            assert phase.lookups == phase.hits + phase.misses
            assert phase.rows_hit + phase.rows_copy + phase.rows_cpu >= phase.lookups
            assert phase.bytes_copied % group.slab_bytes == 0
            assert phase.bytes_copied <= phase.misses * group.slab_bytes
            assert phase.bytes_saved == phase.hits * group.slab_bytes
            assert phase.rows_cpu == 0 or plan.misses != "copy"


def bytes_to_weights(run: DeviceRun) -> int:
    """Bytes that went to buffers of weights, over all devices."""
    return sum(device.to_device_weights_async_bytes + device.to_device_weights_blocking_bytes for device in run.counters)
