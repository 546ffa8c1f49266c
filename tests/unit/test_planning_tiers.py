"""Decisions with two tiers: slots on devices, behind them slots in RAM, behind these the file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool import budget, machine, model, plan
from slotpool.planning import decide, document, lock_notes
from slotpool.planning.two_tiers import ram_slots
from slotpool.predict import COPY, CPU, FROM_DISK, Event, Rates, mean_seconds
from slotpool.predict.cost import tiered_seconds
from testkit import syn
from tests.unit.test_planning import SPEC, given, gpu, quarter, reasons, skewed_trace

RAIL = budget.MIN_RAIL


@pytest.fixture
def moe(model_file: Callable[[syn.Spec], Path]) -> model.Model:
    return model.read(model_file(SPEC))


def test_experts_that_do_not_fit_host_memory_stay_on_disk_behind_the_device(moe: model.Model) -> None:
    found = decide(given(moe, quarter(moe), available=RAIL + moe.expert_bytes // 2, disk="/"))
    assert found.outlook.is_go, found.outlook.reason
    assert "do not fit" in found.notes[0]
    assert (found.made.reads_files, [one.name for one in found.made.devices]) == (True, ["GPU0"])
    assert [terms.name for terms in found.terms] == ["GPU0", "CPU"]
    text = plan.to_text(found.made)
    assert plan.to_text(plan.from_text(text).plan) == text


def test_both_budgets_have_every_term_and_both_kinds_of_slots_are_said(moe: model.Model) -> None:
    slab = sum(one.slab_bytes for one in moe.layers[0])
    found = document(decide(given(moe, quarter(moe), available=1 << 30, ram_budget=40 * slab)))
    device, ram = found["devices"]
    assert device["budget"] == moe.expert_bytes // 4
    assert (ram["name"], ram["free"], ram["rail"], ram["compute"], ram["budget"]) == ("CPU", 1 << 30, RAIL, 10, 40 * slab)
    assert {one["slots"] for one in found["tensors"]} == {7}  # a quarter, less the tails
    assert set(found["ram_slots"]) == {7}  # 40 slabs of four layers, less a quarter for those on their way
    assert found["break_even_hit_rate"] is not None


def test_slots_in_ram_and_the_room_for_what_is_on_its_way_fit_the_budget(moe: model.Model) -> None:
    groups = plan.make(moe, "all").groups
    slabs = [[one.slab_bytes for one in group.tensors] for group in groups]
    for n_bytes in (0, budget.needed_behind_device(slabs), 10**6, 3 * 10**6, 10**7, 10**9):
        slots = ram_slots(groups, n_bytes)
        used = sum(n * budget.slot_bytes(slab) for n, of in zip(slots, slabs, strict=True) for slab in of)
        assert used + n_bytes // 4 <= n_bytes or not used
    assert ram_slots(groups, 10**9) == [32] * 4


def test_ram_without_room_for_two_experts_is_a_no_go(moe: model.Model) -> None:
    found = decide(given(moe, quarter(moe), ram_budget=1000))
    assert "an expert that is computed and one that is read need" in found.outlook.reason
    assert reasons(found) == {f"off: {found.outlook.reason}"}


def test_more_ram_is_never_predicted_to_be_slower(moe: model.Model) -> None:
    speeds = []
    for share in (8, 4, 2, 1):
        found = decide(given(moe, quarter(moe), ram_budget=moe.expert_bytes // share, trace=skewed_trace(moe)))
        assert found.outlook.predicted
        speeds.append(found.outlook.predicted.generation_tps)
    assert speeds == sorted(speeds)
    assert speeds[-1] > speeds[0]


def test_a_layer_keeps_at_least_what_a_token_uses_since_nobody_else_can_read_it(moe: model.Model) -> None:
    slab = sum(one.slab_bytes for one in moe.layers[0])
    found = decide(given(moe, gpu(free=6000 + 4 * 1536 + 9 * slab), ram_budget=10**8))
    assert all(group.slots >= 4 for group in found.made.groups)


def test_seconds_with_a_disk_behind_are_those_without_where_nothing_is_read() -> None:
    event, rates = Event(4, 1000), Rates(cpu=1e6, device=1e7, link=1e5, turn=1e-5, disk=1e5)
    for way in (CPU, COPY):
        assert tiered_seconds(event, 0.6, 0.0, rates, way) == pytest.approx(mean_seconds(event, 0.6, rates, way))
        assert tiered_seconds(event, 1.0, 1.0, rates, way) == pytest.approx(mean_seconds(event, 1.0, rates, way))
    slow = [tiered_seconds(event, 0.6, share, rates, CPU) for share in (0.0, 0.3, 1.0)]
    assert slow == sorted(slow)
    # nothing on the device, everything from the disk: the disk's own formula
    alone = replace(rates, device=float("inf"), turn=0.0)
    assert tiered_seconds(event, 0.0, 1.0, alone, CPU) == pytest.approx(mean_seconds(event, 0.0, alone, FROM_DISK))


# ---- memory that is shared ----


def test_a_device_that_shares_the_hosts_memory_is_not_counted_beside_it(moe: model.Model) -> None:
    shared = gpu("IGPU0", kind="IGPU", free=40 << 30)
    small = decide(given(moe, shared, available=RAIL + moe.expert_bytes // 2, rail=[None]))
    assert small.made.reads_files or "no budget" in small.outlook.reason  # its 40 GiB are the host's, and taken
    assert [terms.name for terms in small.terms] == ["CPU"]
    beside = decide(given(moe, shared, quarter(moe), slots=["auto", "auto"]))
    assert [terms.name for terms in beside.terms] == ["GPU0"]
    assert sum(terms.free for terms in beside.terms) == quarter(moe).free_bytes


# ---- memory that is to be locked ----


def test_more_than_this_process_may_lock_is_said(moe: model.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, on_disk = plan.make(moe, 8), plan.make(moe, 8, ram_budget="auto")
    for limit, made, is_said in (
        (None, loaded, False),
        (moe.expert_bytes + moe.other_bytes, loaded, False),
        (moe.expert_bytes + moe.other_bytes - 1, loaded, True),
        (moe.other_bytes, on_disk, False),
        (moe.other_bytes - 1, on_disk, True),
    ):
        monkeypatch.setattr(machine, "lock_limit", lambda limit=limit: limit)
        assert bool(lock_notes(moe, made)) == is_said, limit


_LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
from slotpool import machine
print(machine.lock_limit(), machine.may_lock_all(open("/proc/self/status").read()))
"""


def test_the_limit_is_the_systems() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _LIMITED], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() in (["65536", "False"], ["None", "True"])


@pytest.mark.parametrize(("mask", "may"), [("4000", True), ("000001ffffffffff", True), ("0000000000003fff", False), ("0", False)])
def test_no_limit_binds_who_may_lock_all(mask: str, may: bool) -> None:
    assert machine.may_lock_all(f"Name:\tpython\nCapPrm:\t{mask}\nCapEff:\t{mask}\n") is may
    assert not machine.may_lock_all("Name:\tpython\n")
