"""Slots on a device, behind them slots in RAM, behind these a disk: bit-equal to plain llama.cpp, with the numbers of both pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool.plan import Plan
from slotpool.planning.two_tiers import ram_slots
from testkit import syn
from testkit.chaos.process import process
from testkit.oracle import (
    LAST,
    Batch,
    Bits,
    DeviceProcess,
    Forget,
    Oracle,
    Reserve,
    Setup,
    Steps,
    assert_same_bits,
    pooled,
    rigged_ubatches,
    steps_of,
)
from tests.tiers.expected import ON_DEVICE, TierRun, expected_tiers, plan_in_tiers, run_in_tiers

MIB = 2**20
SPEC = syn.Spec(n_expert=16, n_expert_used=4, router="rigged", n_layer=2)
ODD = replace(SPEC, n_embd=288, n_head=9, n_ff_exp=288, types={"*": "MXFP4"})
"""Slabs of 44,064 bytes: no two neighbours begin equally far from a block of the disk."""
PLAIN = Setup(n_ubatch=256, n_ctx=1024)
ONES = tuple((token,) for token in (3, 9, 3, 70, 9, 101, 3, 12, 3))
MIXED = steps_of((1,), tuple(range(9)), *ONES, tuple(range(64)), *ONES, (1, 2, 3), tuple(range(30, 230)), *ONES, (5, 6), *ONES)
"""Prompts of 9, 64 and 200 tokens into a cold, a warm and a full RAM; single tokens and small batches between."""
FEW, SOME, MOST = MIB, 3 * MIB, 6 * MIB
"""RAM for one slot of SPEC's 16 experts, for 6, for about 12; the rest is for experts without a slot."""

ModelFile = Callable[[syn.Spec], Path]


def run(made: DeviceProcess, path: Path, plan: Plan, setup: Setup, steps: Steps) -> TierRun:
    return made.call(run_in_tiers, path, plan, setup, steps)


def check(found: TierRun, plain: Sequence[Bits]) -> None:
    assert_same_bits(found.bits, list(plain))
    assert found.hazard == ""
    if found.counters:
        assert (found.counters.hazards, found.counters.failures) == (0, 0)


@pytest.mark.parametrize("budget", [FEW, SOME, MOST, 64 * MIB])
def test_the_planner_knows_how_many_slots_ram_will_have(budget: int, model_file: ModelFile, lazy: DeviceProcess) -> None:
    plan = plan_in_tiers(model_file(SPEC), 6, budget=budget, misses="cpu")
    found = run(lazy, model_file(SPEC), plan, ON_DEVICE, steps_of((1,), (2,)))
    said = ram_slots(plan.groups, budget)
    # a slot is taken to begin as far from a block of the disk as can be, and what is left over is one slot more
    assert all(n <= group.slots <= n + 1 for n, group in zip(said, found.ram, strict=True)), (said, found.ram)


@pytest.mark.parametrize("budget", [FEW, SOME, MOST, None], ids=["few", "some", "most", "all"])
@pytest.mark.parametrize("slots", [4, 6, 10, 16])
@pytest.mark.parametrize("misses", ["copy", "cpu"])
def test_both_pools_show_their_numbers(
    misses: str, slots: int, budget: int | None, oracle: Oracle, model_file: ModelFile, devices: DeviceProcess
) -> None:
    path = model_file(SPEC)
    plan = plan_in_tiers(path, slots, budget=budget, misses=misses)
    found = run(devices, path, plan, ON_DEVICE, MIXED)
    check(found, oracle.logits(path, PLAIN, MIXED))
    ram_slots = [group.slots for group in found.ram]
    assert max(ram_slots) < SPEC.n_expert if budget else ram_slots == [SPEC.n_expert] * 2
    expected = expected_tiers(plan, ram_slots, rigged_ubatches(SPEC, MIXED, ON_DEVICE.n_ubatch))
    assert (found.device, found.ram) == expected
    assert found.ram[0].generation.misses > 0
    if budget:
        assert found.taken <= budget


@pytest.mark.parametrize("budget", [FEW, SOME, None], ids=["few", "some", "all"])
@pytest.mark.parametrize("misses", ["copy", "cpu", "auto", "frozen"])
def test_copies_in_the_background_are_right_whenever_they_arrive(
    misses: str, budget: int | None, oracle: Oracle, model_file: ModelFile, devices: DeviceProcess
) -> None:
    path = model_file(ODD)
    plan = replace(plan_in_tiers(path, 6, budget=budget and budget // 3, misses=misses), is_settled=False)
    steps = MIXED + MIXED[:30]
    found = run(devices, path, plan, ON_DEVICE, steps)
    check(found, oracle.logits(path, PLAIN, steps))
    has_slots = max(group.slots for group in found.ram) > 0
    # what is in RAM for a moment only is copied at once or not at all
    assert (sum((group.generation + group.prompt).hits for group in found.device) > 0) == (misses == "copy" or has_slots)


@pytest.mark.parametrize("misses", ["copy", "cpu"])
@pytest.mark.parametrize("arch", ["gpt-oss", "grovemoe", "deepseek2", "llama4", "gemma4", "qwen3next"])
def test_every_layout(arch: str, misses: str, oracle: Oracle, model_file: ModelFile, lazy: DeviceProcess) -> None:
    """gpt-oss has biases by expert, which lie beside the experts; grovemoe has two routings a layer."""
    path = model_file(syn.Spec(arch=arch, n_layer=4, n_expert=16, n_expert_used=4 if arch != "llama4" else 1))
    plan = plan_in_tiers(path, 6, budget=8 * MIB, misses=misses)
    assert any(group.biases for group in plan.groups) == (arch == "gpt-oss")
    found = run(lazy, path, plan, ON_DEVICE, MIXED)
    check(found, oracle.logits(path, PLAIN, MIXED))
    ram_slots = [group.slots for group in found.ram]
    assert (found.device, found.ram) == expected_tiers(plan, ram_slots, oracle.routing(path, PLAIN, MIXED))


@pytest.mark.parametrize("budget", [FEW, None], ids=["few", "all"])
@pytest.mark.parametrize("misses", ["copy", "cpu"])
def test_nodes_one_at_a_time_read_each_expert_once_an_event(
    misses: str, budget: int | None, oracle: Oracle, model_file: ModelFile, lazy: DeviceProcess
) -> None:
    path = model_file(SPEC)
    plan = plan_in_tiers(path, 6, budget=budget, misses=misses)
    found = run(lazy, path, plan, replace(ON_DEVICE, one_node_at_a_time=True), MIXED)
    check(found, oracle.logits(path, PLAIN, MIXED))
    ram_slots = [group.slots for group in found.ram]
    assert (found.device, found.ram) == expected_tiers(plan, ram_slots, rigged_ubatches(SPEC, MIXED, ON_DEVICE.n_ubatch))


def test_a_prompt_whose_last_layer_has_one_row_leaves_the_device_alone(oracle: Oracle, model_file: ModelFile, lazy: DeviceProcess) -> None:
    path = model_file(SPEC)
    steps = (Batch(tuple(range(64)), outputs=LAST), *steps_of((1,)), Reserve(), *steps_of((2,)))
    plan = plan_in_tiers(path, 6, budget=SOME)
    found = run(lazy, path, plan, ON_DEVICE, steps)
    check(found, oracle.logits(path, PLAIN, steps))
    last = found.device[-1].prompt
    assert (last.lookups, last.rows_cpu) == (0, SPEC.n_expert_used)


def test_layers_on_two_devices_share_the_ram(oracle: Oracle, model_file: ModelFile, lazy: DeviceProcess) -> None:
    spec = replace(SPEC, n_layer=4)
    path = model_file(spec)
    plan = plan_in_tiers(path, 6, budget=8 * MIB, devices=("CHAOS0", "CHAOS1"))
    found = run(lazy, path, plan, replace(ON_DEVICE, tensor_split=(1.0, 1.0)), MIXED)
    check(found, oracle.logits(path, PLAIN, MIXED))
    assert {group.device for group in found.device} == {"CHAOS0", "CHAOS1"}
    slots = [group.slots for group in found.ram]
    assert max(slots) - min(slots) <= 1
    assert 0.8 * 8 * MIB < found.taken <= 8 * MIB


def test_layers_on_the_cpu_beside_layers_on_a_device(oracle: Oracle, model_file: ModelFile, lazy: DeviceProcess) -> None:
    spec = replace(SPEC, n_layer=4)
    path = model_file(spec)
    plan = plan_in_tiers(path, 6, devices=("CHAOS0", "CHAOS1"))
    found = run(lazy, path, plan, replace(ON_DEVICE, n_gpu_layers=3, tensor_split=(1.0, 1.0)), MIXED)
    check(found, oracle.logits(path, PLAIN, MIXED))
    assert "CPU" in {group.device for group in found.device}


def two_contexts(path: Path, plan: Plan, setup: Setup, steps: Steps) -> list[tuple[list[Bits], int]]:
    """In a process with a device: two contexts take turns; the bits of each turn, and the RAM that is taken."""
    turns = []
    with pooled(path, plan, setup) as model:
        second = model.context()
        for context in (model.first, second, model.first):
            context.run((Forget(),))
            bits = context.run(steps)
            turns.append((bits, {one.name: one.taken for one in model.session.devices()}["CPU"]))
        model.counts()
    return turns


@pytest.mark.parametrize("budget", [SOME, None], ids=["some", "all"])
def test_two_contexts_share_the_budget(budget: int | None, oracle: Oracle, model_file: ModelFile, lazy: DeviceProcess) -> None:
    path = model_file(SPEC)
    plan = plan_in_tiers(path, 6, budget=budget, misses="cpu")
    plain = oracle.logits(path, PLAIN, MIXED)
    for bits, taken in lazy.call(two_contexts, path, plan, ON_DEVICE, MIXED):
        assert_same_bits(bits, plain)
        assert budget is None or taken <= budget + 2 * 2 * MIB  # a second context has no slots, and room for two experts


def test_a_device_without_room_leaves_the_ram_tier(oracle: Oracle, model_file: ModelFile, tmp_path: Path) -> None:
    path = model_file(SPEC)
    plan = plan_in_tiers(path, 6, budget=SOME)
    none = replace(plan, devices=tuple(replace(one, budget=0) for one in plan.devices))
    with DeviceProcess() as made:
        found = run(made, path, none, ON_DEVICE, MIXED)
    check(found, oracle.logits(path, PLAIN, MIXED))
    assert sum(group.generation.lookups for group in found.device) == 0
    assert sum(group.generation.hits for group in found.ram) > 0


def test_an_rpc_server_is_a_device_like_any_other(oracle: Oracle, model_file: ModelFile, rpc_server: str) -> None:
    path = model_file(SPEC)
    for misses in ("copy", "cpu", "auto"):
        with process(None) as made:
            plan, found = made.submit(run_over_rpc, path, rpc_server, misses).result(120)
        check(found, oracle.logits(path, PLAIN, MIXED))
        expected = expected_tiers(plan, [group.slots for group in found.ram], rigged_ubatches(SPEC, MIXED, ON_DEVICE.n_ubatch))
        assert misses == "auto" or (found.device, found.ram) == expected
        assert sum(group.generation.hits for group in found.device) > 0


def run_over_rpc(path: Path, server: str, misses: str) -> tuple[Plan, TierRun]:
    """In a process of its own: the first device is the server's."""
    from slotpool import engine

    engine.add_rpc_servers([server])
    (device,) = [one.name for one in engine.devices() if one.name.startswith("RPC")]
    plan = plan_in_tiers(path, 6, budget=SOME, misses=misses, devices=(device,))
    return plan, run_in_tiers(path, plan, replace(ON_DEVICE, tensor_split=()), MIXED)


def test_a_wrong_slot_would_be_seen(oracle: Oracle, model_file: ModelFile, lazy: DeviceProcess) -> None:
    """The comparison can fail: with two slots of the device exchanged logits differ."""
    path = model_file(SPEC)
    bits = lazy.call(run_damaged, path, plan_in_tiers(path, 6, budget=SOME))
    plain = oracle.logits(path, PLAIN, steps_of(*ONES) * 2)
    assert any((a != b).any() for a, b in zip(bits, plain, strict=True))


def run_damaged(path: Path, plan: Plan) -> list[Bits]:
    with pooled(path, plan, ON_DEVICE) as model:
        before = model.run(steps_of(*ONES))
        assert model.session.corrupt(0, swap_slots=True)
        return before + model.run(steps_of(*ONES))


def test_what_is_written_to_the_device_is_what_the_pool_says(oracle: Oracle, model_file: ModelFile, lazy: DeviceProcess) -> None:
    path = model_file(SPEC)
    found = run(lazy, path, plan_in_tiers(path, 6, budget=SOME), ON_DEVICE, MIXED)
    counters = found.counters
    assert counters
    copied = sum((group.generation + group.prompt).bytes_copied for group in found.device)
    assert copied == counters.to_device_weights_async_bytes + counters.to_device_weights_blocking_bytes > 0
