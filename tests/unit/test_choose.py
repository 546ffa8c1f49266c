"""`auto`: when it is for the planner to say, and what is run when it says go or no-go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool import budget, model, native, plan
from slotpool.planning import Asked, choose, choosing
from slotpool.reserve import DeviceBytes, Reservation, Wanted
from testkit import syn
from tests.unit.test_planning import SPEC, flat_trace, given, gpu, quarter, skewed_trace

GIB = 1 << 30


@pytest.fixture
def moe(model_file: Callable[[syn.Spec], Path]) -> model.Model:
    return model.read(model_file(SPEC))


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the planner is given in place of what would be gathered; `n` counts how often."""
    found: dict[str, Any] = {"n": 0}

    def gathered(*_: object, repack: bool, **__: object) -> tuple[Any, list[str]]:
        found["n"] += 1
        return replace(found["given"], repack=repack), ["a note"]

    monkeypatch.setattr(choosing, "gather", gathered)
    monkeypatch.setattr(native, "available_memory", lambda: native.AvailableMemory(40 * GIB, None))
    return found


@pytest.mark.parametrize(
    ("asked", "devices", "available", "is_open"),
    [
        (Asked(), ["GPU0"], 40 * GIB, True),
        (Asked(), [], 40 * GIB, False),
        (Asked(), [], 10**7, True),
        (Asked(rail=40 * GIB), [], 40 * GIB, True),
        (Asked(8), ["GPU0"], 40 * GIB, False),
        (Asked([8, "auto"]), ["GPU0", "GPU1"], 40 * GIB, True),
        (Asked(ram_budget="auto"), ["GPU0"], 40 * GIB, False),
        (Asked(ram_budget=10**9), [], 10**7, False),
        (Asked(slots_per_layer="0=8"), ["GPU0"], 40 * GIB, False),
        (Asked(slots_per_role={"down": 8}), ["GPU0"], 40 * GIB, False),
    ],
)
def test_it_is_for_the_planner_where_nothing_was_asked_for(
    moe: model.Model, asked: Asked, devices: list[str], available: int, is_open: bool
) -> None:
    assert choosing.is_open(moe, asked, devices, available) is is_open


def test_a_go_runs_the_planners_own_plan(moe: model.Model, asks: dict[str, Any]) -> None:
    asks["given"] = given(moe, quarter(moe), trace=skewed_trace(moe))
    found = choose(moe, Asked(), ["GPU0"], Wanted)
    assert {group.device for group in found.made.groups} == {"GPU0"}
    assert found.made.warnings[-1] == "a note"
    assert found.host_layers is None


def test_a_no_go_is_off_with_its_reason_and_whole_layers_on_the_device(moe: model.Model, asks: dict[str, Any]) -> None:
    asks["given"] = given(moe, quarter(moe), trace=flat_trace(moe))
    found = choose(moe, Asked(), ["GPU0"], Wanted)
    assert found.made.groups == ()
    assert found.made.reason.startswith("off: slots would not pay, ")
    assert found.host_layers == (1, 2, 3)  # a quarter of the experts is one layer of four


def test_a_model_that_fits_the_device_goes_there_whole(moe: model.Model, asks: dict[str, Any]) -> None:
    asks["given"] = given(moe, gpu(), whole=Reservation((DeviceBytes("GPU0", 5000, 2000, 1000),)))
    found = choose(moe, Asked(), ["GPU0"], Wanted)
    assert "the whole model fits on the device" in found.made.reason
    assert found.host_layers == ()


def test_nobody_is_asked_where_the_answer_is_known(moe: model.Model, asks: dict[str, Any]) -> None:
    assert "RAM suffices" in choose(moe, Asked(), [], Wanted).made.reason
    made = choose(moe, Asked(8, slots_per_layer="1=off"), ["GPU0"], Wanted).made
    assert [group.slots for group in made.groups] == [8, 0, 8, 8]
    assert asks["n"] == 0


def test_one_path_with_plan(moe: model.Model, asks: dict[str, Any]) -> None:
    """What `slotpool plan -o` writes is what `auto` runs."""
    from slotpool.planning import decide

    asks["given"] = given(moe, quarter(moe), trace=skewed_trace(moe))
    assert plan.to_text(choose(moe, Asked(), ["GPU0"], Wanted).made) == plan.to_text(decide(asks["given"]).made)


@pytest.mark.parametrize("repack", [True, False])
def test_slots_over_a_disk_are_as_weights_may_be(moe: model.Model, asks: dict[str, Any], repack: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(budget, "LEAST_RING", 1 << 16)  # else it is more than this model
    monkeypatch.setattr(native, "available_memory", lambda: native.AvailableMemory(10**7, None))
    asks["given"] = given(moe, available=6000 + budget.MIN_RAIL + moe.expert_bytes // 2, rail=[None])
    found = choose(moe, Asked(), [], Wanted, repack=repack)
    assert found.made.reads_files
    assert (found.made.is_repacked, found.stays_mapped) == (repack, False)


@pytest.mark.parametrize("repack", [True, False])
def test_where_slots_over_a_disk_would_not_pay_the_model_stays_mapped(
    moe: model.Model, asks: dict[str, Any], repack: bool, monkeypatch: Any
) -> None:
    """What llama.cpp repacks it copies into memory, which has no room for it."""
    monkeypatch.setattr(native, "available_memory", lambda: native.AvailableMemory(10**7, None))
    asks["given"] = given(moe, available=6000 + budget.MIN_RAIL + 1000, rail=[None])
    found = choose(moe, Asked(), [], Wanted, repack=repack)
    assert found.made.groups == ()
    assert found.stays_mapped
    assert any("not repacked" in line for line in found.made.warnings) == repack
    asks["given"] = given(moe)
    assert not choose(moe, Asked(), [], Wanted, repack=repack).stays_mapped  # there is room after all
