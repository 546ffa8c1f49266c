"""The core and chaos devices in one process: experts pooled on the CPU while everything else is on a device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testkit import syn
from testkit.chaos import Counters
from testkit.chaos.process import here, process
from testkit.oracle import Bits, Oracle, Setup, assert_same_bits, plan_of, pooled, steps_of

SETUP = Setup(n_gpu_layers=99, placed=(("exps", "CPU"),))
STEPS = steps_of(range(1, 60), [5], [6, 7, 8], [9])


def test_pooled_run_with_dense_layers_on_a_device_is_bit_equal(oracle: Oracle, model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(syn.Spec(types={"*": "Q4_K"}))
    with process({}) as beside:
        bits, n_lookups, counted = beside.submit(pooled_run, path).result()
    assert_same_bits(bits, oracle.logits(path, Setup(), STEPS))
    assert n_lookups > 0
    assert counted.graphs > 0
    assert (counted.hazards, counted.failures) == (0, 0)


def pooled_run(path: Path) -> tuple[list[Bits], int, Counters]:
    """In a process with a device."""
    devices = here()
    assert devices
    with pooled(path, plan_of(path, 8), SETUP) as run:
        bits = run.run(STEPS)
        n_lookups = sum(c.generation.hits + c.generation.misses for c in run.counts())
        return bits, n_lookups, devices.counters()
