"""Slots on devices: every layout of experts, every kind of batch, every place where a part of the model can be.

Random routing, watched in the plain run; the reference pool says what each counter must be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool.plan import Plan
from testkit import syn
from testkit.cases import LAYOUTS, layout, varied_steps
from testkit.oracle import (
    ON_DEVICE,
    Batch,
    DeviceProcess,
    Oracle,
    Split,
    check_on_devices,
    plan_on,
)

ModelFile = Callable[[syn.Spec], Path]

SETUP = replace(ON_DEVICE, n_ubatch=12)
BOTH = replace(SETUP, tensor_split=(0.5, 0.5))
MODES = ("copy", "cpu", "auto", "frozen")
SPLIT_BY_SCALES = ("qwen3moe-scales", "llama-scales-without-gate", "nemotron_h_moe-scales")
"""A scale of gate or up is looked up by a GET_ROWS that nobody takes: it cuts the layer's split at every expert tensor."""


def homes_of(plan: Plan, names: Sequence[str]) -> list[str]:
    """The device of each group where the first half of the model's layers is on the first of two devices."""
    return [names[0]] * len(plan.groups) if len(names) == 1 else [names[group.layer * 2 >= 4] for group in plan.groups]


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_bit_equal_and_counts_as_the_reference(
    name: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess, threaded: DeviceProcess
) -> None:
    """Every layout with a few slots (evictions, refusals) and with all; modes and devices go round."""
    spec, number = LAYOUTS[name], list(LAYOUTS).index(name)
    path = model_file(spec)
    for turn, slots in enumerate((spec.n_expert_used + 1, spec.n_expert)):
        for misses in (MODES[number % 2], MODES[2 + (number + turn) % 2]):
            process = (lazy, threaded)[(number + turn) % 2]
            check_on_devices(oracle, process, path, plan_on(path, slots, misses=misses), varied_steps(), SETUP)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_bit_equal_when_nodes_come_one_at_a_time(name: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    path, number = model_file(LAYOUTS[name]), list(LAYOUTS).index(name)
    setup = replace(SETUP, one_node_at_a_time=True)
    plan = plan_on(path, LAYOUTS[name].n_expert_used + 1, misses=("cpu", "copy", "frozen")[number % 3])
    check_on_devices(oracle, lazy, path, plan, varied_steps(), setup)


def splits_of_experts(splits: Sequence[Split]) -> list[Split]:
    return [split for split in splits if split.backend.startswith("SLOTPOOL")]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layer_is_one_split_with_no_inputs(name: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """The activation arrives on the device and stays there; biases of gpt-oss come along. Scales that are looked up cut a layer."""
    path = model_file(LAYOUTS[name])
    plan = plan_on(path, LAYOUTS[name].n_expert_used)
    splits = splits_of_experts(check_on_devices(oracle, lazy, path, plan, (Batch((1,)),), replace(SETUP, keeps_log=True)).splits)
    n_matmuls = [len(group.tensors) for group in plan.groups]
    per_split = [1] * sum(n_matmuls) if name in SPLIT_BY_SCALES else n_matmuls
    assert [split.ops.count("MUL_MAT_ID") for split in splits] == per_split
    assert {split.n_inputs for split in splits} == {0}
    if name in ("qwen3moe", "granite_swa-fused", "gpt-oss-biases"):
        assert {len(split.nodes) for split in splits} == {{"qwen3moe": 4, "granite_swa-fused": 3, "gpt-oss-biases": 7}[name]}


FOUR = layout("qwen3moe", n_layer=4)


@pytest.mark.parametrize("misses", MODES)
@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "grovemoe"])
def test_two_devices_serve_their_own_layers(
    arch: str, misses: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess, threaded: DeviceProcess
) -> None:
    path = model_file(layout(arch, n_layer=4))
    plan = plan_on(path, (6, 16), ("CHAOS0", "CHAOS1"), misses=misses)
    for process in (lazy, threaded):
        homes = ["CHAOS0" if group.layer < 3 else "CHAOS1" for group in plan.groups]
        run = check_on_devices(oracle, process, path, plan, varied_steps(), replace(SETUP, tensor_split=(0.6, 0.4)), homes)
        assert {group.device for group in run.counts} == {"CHAOS0", "CHAOS1"}
