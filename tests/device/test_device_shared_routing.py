"""Pools that share a routing on a device: roles of a layer with slot tables of their own, or none, however misses are served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool import model as files
from slotpool import plan as plans
from testkit import syn
from testkit.cases import LAYOUTS, varied_steps
from testkit.oracle import ON_DEVICE, DeviceProcess, Oracle, assert_same_bits, check_on_devices, total

ModelFile = Callable[[syn.Spec], Path]
SETUP = replace(ON_DEVICE, n_ubatch=12)
CELLS = [
    ("qwen3moe", "down=7"),
    ("qwen3moe", "gate=5,up=9,down=all"),
    ("granite_swa-fused", "gate_up=6,down=11"),
    ("gpt-oss-biases", "down=9"),
]


def planned(path: Path, misses: str, **asked: str) -> plans.Plan:
    made = plans.make(files.read(path), 8, policy="decay", poison=True, devices=["CHAOS0"], misses=misses, rail=0, **asked)  # type: ignore[arg-type]
    return replace(made, is_settled=True)


@pytest.mark.parametrize("misses", ["copy", "cpu", "auto", "frozen"])
@pytest.mark.parametrize(("name", "roles"), CELLS)
def test_roles_with_tables_of_their_own_are_bit_equal_and_count_as_the_reference(
    name: str, roles: str, misses: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess
) -> None:
    path = model_file(LAYOUTS[name])
    run = check_on_devices(oracle, lazy, path, planned(path, misses, slots_per_role=roles), varied_steps(), SETUP)
    generated, prompted, _ = total(run.counts)
    assert (generated + prompted).hits > 0


@pytest.mark.parametrize("asked", [{"slots_per_role": "down=off"}, {"slots_per_role": "gate=off"}, {"slots_per_layer": "0=off"}], ids=str)
@pytest.mark.parametrize("misses", ["copy", "cpu"])
def test_what_has_no_slots_stays_in_the_store_and_the_bits_are_the_same(
    misses: str, asked: dict[str, str], model_file: ModelFile, oracle: Oracle, threaded: DeviceProcess
) -> None:
    path = model_file(LAYOUTS["qwen3moe"])
    made = planned(path, misses, **asked)
    run = threaded.run(path, made, SETUP, varied_steps())
    assert_same_bits(run.bits, oracle.logits(path, replace(SETUP, n_gpu_layers=0, tensor_split=()), varied_steps()))
    assert run.hazard == ""
    assert run.off == ["" if group.slots else "0 slots asked for" for group in made.groups]
    assert sum((group.generation + group.prompt).hits for group in run.counts) > 0
