"""Layers whose input is made on the host while the device still computes their routing: the pool device waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool import model as files
from slotpool import plan as plans
from testkit import syn
from testkit.chaos.process import here, process
from testkit.oracle import Bits, Oracle, Setup, assert_same_bits, pooled, steps_of

SPEC = syn.Spec()
STEPS = steps_of(range(1, 5), *([token] for token in range(5, 11)), [3, 4])
SETUP = Setup(n_gpu_layers=99, placed=(("ffn_norm", "CPU"),))


@pytest.mark.parametrize("knobs", [{}, {"threaded": 1, "node_ns": 20000}], ids=["lazy", "threaded"])
def test_routing_of_the_device_and_input_of_the_host_are_both_waited_for(
    knobs: dict[str, float], oracle: Oracle, model_file: Callable[[syn.Spec], Path]
) -> None:
    path = model_file(SPEC)
    with process(knobs) as beside:
        got, n_lookups, hazard = beside.submit(runs, path).result()
    assert hazard == ""
    assert n_lookups > 0
    assert_same_bits(got, oracle.logits(path, Setup(), STEPS))


def runs(path: Path) -> tuple[list[Bits], int, str]:
    """In a process with a device."""
    devices = here()
    assert devices
    made = plans.make(files.read(path), 8, poison=True)
    groups = tuple(replace(group, device="auto") for group in made.groups)
    made = replace(made, devices=(plans.PlannedDevice("CHAOS0", 8, None, 0),), misses="cpu", is_settled=True, groups=groups)
    with pooled(path, made, SETUP) as run:
        bits = run.run(STEPS)
        return bits, sum(count.generation.lookups for count in run.counts()), devices.first_hazard()
