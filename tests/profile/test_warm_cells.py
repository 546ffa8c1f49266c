"""Pools that begin warm: bit-equal to plain llama.cpp, with the numbers of the reference pool, wherever slots and experts are.

A warm set is drawn by chance, so that it is right and wrong about what comes; events evict in every step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool.plan import Plan
from slotpool.profile import pin_of
from testkit import syn
from testkit.chaos.process import process
from testkit.oracle import DeviceProcess, Oracle, Setup, assert_same_bits, check_on_devices, check_pooled, plan_of, plan_on, steps_of, total
from tests.tiers.expected import ON_DEVICE as IN_TIERS
from tests.tiers.expected import expected_tiers, plan_in_tiers, run_in_tiers

SPEC = syn.Spec(n_expert=16, n_expert_used=4, router="rigged", n_layer=3)
SETUP = Setup(n_ubatch=64, n_ctx=512)
ONES = tuple((token,) for token in (3, 9, 3, 70, 9, 101, 3, 12, 3))
STEPS = steps_of(*ONES, (1, 2), tuple(range(40)), *ONES, (5, 6), tuple(range(30, 54)), *ONES)
PINS = (None, 2, "50%", "100%")
ModelFile = Callable[[syn.Spec], Path]


def warm(plan: Plan, pin: int | str | None, n_known: int = 12) -> Plan:
    """The plan with a warm set for each group, drawn by its layer."""
    groups = []
    for group in plan.groups:
        draw = random.Random(group.layer)
        experts = draw.sample(range(group.n_expert), min(n_known, group.n_expert))
        shares = sorted((draw.randint(1, 10**6) for _ in experts), reverse=True)
        groups.append(replace(group, warm=tuple(zip(experts, shares, strict=True))))
    return replace(plan, groups=tuple(groups), pin=pin_of(pin, 4))


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceProcess]:
    with DeviceProcess({"devices": 2, "threaded": 1}) as made:
        yield made


@pytest.fixture(scope="module")
def tiers() -> Iterator[ProcessPoolExecutor]:
    with process({"devices": 1}) as made:
        yield made


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("slots", [4, 8, 16])
@pytest.mark.parametrize("pin", PINS)
@pytest.mark.parametrize("policy", ["lru", "follow"])
def test_slots_in_ram(policy: str, pin: int | str | None, slots: int, on_disk: bool, oracle: Oracle, model_file: ModelFile) -> None:
    plan = warm(plan_of(model_file(SPEC), slots, policy=policy, on_disk=on_disk), pin)
    setup = replace(SETUP, load_mode="none") if on_disk else SETUP
    counts = check_pooled(oracle, model_file(SPEC), plan, STEPS, setup)
    assert [group.warmed for group in counts] == [min(slots, 12)] * 3
    most = {None: 0, 2: 2, "50%": slots // 2, "100%": slots}[pin]
    assert [group.pinned for group in counts] == [min(most, slots - 4, 12)] * 3
    assert total(counts)[0].hits > 0


@pytest.mark.parametrize("misses", ["copy", "cpu", "frozen"])
@pytest.mark.parametrize("pin", PINS)
def test_slots_on_a_device(pin: int | str | None, misses: str, oracle: Oracle, model_file: ModelFile, device: DeviceProcess) -> None:
    path = model_file(SPEC)
    run = check_on_devices(oracle, device, path, warm(plan_on(path, 8, misses=misses), pin), STEPS)
    assert [group.warmed for group in run.counts] == [8] * 3
    if misses == "frozen":
        assert [group.admitted for group in run.counts] == [0] * 3, "a static set was changed"


@pytest.mark.parametrize("misses", ["copy", "cpu", "auto", "frozen"])
@pytest.mark.parametrize("pin", [None, "50%"])
def test_what_arrives_in_the_background_is_right_whenever_it_comes(
    misses: str, pin: str | None, oracle: Oracle, model_file: ModelFile, device: DeviceProcess
) -> None:
    path = model_file(SPEC)
    plan = warm(plan_on(path, 8, misses=misses, is_settled=False), pin)
    run = check_on_devices(oracle, device, path, plan, STEPS)
    assert total(run.counts)[0].hits > 0
    if misses in ("copy", "frozen"):  # they wait for all of it, so their first event is as any other
        settled = check_on_devices(oracle, device, path, replace(plan, is_settled=True), STEPS)
        assert misses == "copy" or run.counts == settled.counts


def test_frozen_slots_in_ram_stay_what_the_profile_says(oracle: Oracle, model_file: ModelFile, device: DeviceProcess) -> None:
    path = model_file(SPEC)
    plan = warm(plan_on(path, 8, (), misses="frozen", is_settled=False), None)
    run = check_on_devices(oracle, device, path, plan, STEPS, setup=SETUP)
    assert [(group.warmed, group.admitted) for group in run.counts] == [(8, 0)] * 3
    assert total(run.counts)[0].hits > 0


@pytest.mark.parametrize("misses", ["copy", "cpu"])
@pytest.mark.parametrize("pin", [None, "25%"])
def test_slots_in_two_tiers(pin: str | None, misses: str, oracle: Oracle, model_file: ModelFile, tiers: ProcessPoolExecutor) -> None:
    path = model_file(SPEC)
    plan = warm(plan_in_tiers(path, 6, budget=3 << 20, misses=misses), pin)
    setup = replace(IN_TIERS, tensor_split=(1.0,))
    found = tiers.submit(run_in_tiers, path, plan, setup, STEPS).result(120)
    assert_same_bits(found.bits, oracle.logits(path, Setup(n_ubatch=256, n_ctx=1024), STEPS))
    assert found.hazard == ""
    ram_slots = [group.slots for group in found.ram]
    expected = expected_tiers(plan, ram_slots, oracle.routing(path, Setup(n_ubatch=256, n_ctx=1024), STEPS))
    assert (found.device, found.ram) == expected
    assert [group.warmed for group in found.device] == [6] * 3
    assert min(group.warmed for group in found.ram) > 0


def test_a_second_context_begins_as_warm_as_the_first(model_file: ModelFile, oracle: Oracle) -> None:
    from testkit.oracle import expected_counts, pooled

    path = model_file(SPEC)
    plan = warm(plan_of(path, 8), "25%")
    routing = oracle.routing(path, SETUP, STEPS)
    with pooled(path, plan, SETUP) as model:
        bits = [model.run(STEPS), model.context().run(STEPS)]
        assert model.counts() == expected_counts(plan, routing, routing)
    for one in bits:
        assert_same_bits(one, oracle.logits(path, SETUP, STEPS))


def test_heat_is_rows_by_expert_whatever_was_reset(model_file: ModelFile, oracle: Oracle) -> None:
    import numpy as np

    from testkit.oracle import pooled

    path = model_file(SPEC)
    ubatches = oracle.routing(path, SETUP, STEPS)
    with pooled(path, plan_of(path, 16), SETUP) as model:
        model.run(STEPS)
        model.session.reset_counts()
        assert model.counts()[0].warmed == 0
        for index, group in enumerate(model.plan.groups):
            ids = np.concatenate([ubatch.ids[group.layer, group.pass_].ravel() for ubatch in ubatches])
            assert model.session.heat(index) == np.bincount(ids, minlength=group.n_expert).tolist()
