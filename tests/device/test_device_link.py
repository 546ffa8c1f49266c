"""Who waits for whom on a link that is slow: what an event needs in a moment is not behind what takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slotpool import model as files
from slotpool.plan import Plan
from testkit import syn
from testkit.cases import N_USED, layout
from testkit.oracle import ON_DEVICE, Bits, DeviceProcess, Oracle, Steps, assert_same_bits, plan_on, pooled, steps_of
from testkit.oracle.devices import chaos

TENSOR_NS = 4_000_000
"""Declared time of one tensor of an expert, on the link and on the CPU alike: of two misses one is copied and one computed."""


@pytest.fixture(scope="module")
def slow() -> Iterator[DeviceProcess]:
    """A device, and a CPU that knows from the start that it will be slowed down."""
    with DeviceProcess({"threaded": 1, "cpu_ns_per_byte": 1e-6}) as process:
        yield process


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss"])
def test_rows_of_the_cpu_are_fetched_before_the_copies_beside_them(
    arch: str, model_file: Callable[[syn.Spec], Path], oracle: Oracle, slow: DeviceProcess
) -> None:
    path, steps = model_file(layout(arch)), steps_of(*[[token] for token in range(40, 64)])
    plan = plan_on(path, N_USED + 2, misses="auto", is_settled=False)
    bits, n_behind, tensor_bytes, n_rows = slow.call(over_a_slow_link, path, plan, steps)
    assert_same_bits(bits, oracle.logits(path, ON_DEVICE, steps))
    assert min(n_rows) > 4  # rows copied and rows of the CPU
    assert n_behind < tensor_bytes  # a piece of a copy for later, at most


def over_a_slow_link(path: Path, plan: Plan, steps: Steps) -> tuple[list[Bits], int, int, tuple[int, int]]:
    """Logits, the most bytes of weights that a read found on the link, those of an expert's smallest tensor, rows copied and of the CPU."""
    tensor_bytes = min(tensor.slab_bytes for tensor in files.read(path).experts)
    devices = chaos()
    with pooled(path, plan, ON_DEVICE) as pool:
        devices.set(0, link_bytes_per_second=tensor_bytes / TENSOR_NS * 1e9, cpu_ns_per_byte=TENSOR_NS / tensor_bytes)
        try:
            bits = pool.run(steps)
        finally:
            devices.set(0, link_bytes_per_second=0, cpu_ns_per_byte=1e-6)
        found = [group.generation for group in pool.counts()]
        n_rows = (sum(one.rows_copy for one in found), sum(one.rows_cpu for one in found))
        return bits, devices.counters(0).weights_before_read, tensor_bytes, n_rows
