"""Decisions: every no-go with its reason, every term of a budget, slots and plan files, from made-up machines and a real model's header."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slotpool import budget, model, native, plan, speeds
from slotpool.engine import Device
from slotpool.errors import SlotpoolError
from slotpool.plan import Group
from slotpool.planning import Decision, Given, decide, document
from slotpool.planning.decision import DEVICE_RAIL
from slotpool.probe.subjects import plain_weights
from slotpool.reserve import DeviceBytes, Reservation
from slotpool.speeds import Speed, Speeds
from slotpool.trace import GENERATION, Facts, Trace, single_events
from slotpool.trace import Group as Recorded
from testkit import syn

GIB = 1 << 30
TAILS = budget.DEVICE_TAIL * 3
"""Of a layer: gate, up and down."""
SPEC = syn.Spec(n_layer=4, n_expert=32, n_expert_used=4, n_embd=256, n_ff_exp=256)


@pytest.fixture
def moe(model_file: Callable[[syn.Spec], Path]) -> model.Model:
    return model.read(model_file(SPEC))


def gpu(name: str = "GPU0", free: int = 20 * GIB, kind: str = "GPU") -> Device:
    return Device(name, "a card", kind, free, 24 * GIB)


def measured(facts: model.Model, *devices: str, cpu: float = 1e9, link: float = 1e8, disk: float = 1e9, faults: float = 1e7) -> Speeds:
    """Speeds of a machine: devices 16 times as fast as the CPU."""
    found = [("/", speeds.direct(4), disk, "B/s"), ("/", speeds.FAULTS, faults, "B/s")]
    weights = plain_weights(facts)
    assert weights
    for subject, speed in (("CPU", cpu), *((name, 16 * cpu) for name in devices)):
        found += [(subject, speeds.plain(weights.type_name, weights.ne0, weights.ne1), speed, "B/s"), (subject, speeds.NODE, 1e-7, "s")]
        kinds = {(one.type, one.ne[0], one.ne[1]) for one in facts.experts}
        found += [(subject, speeds.experts(*kind, facts.n_expert_used), speed, "B/s") for kind in kinds]
    for name in devices:
        found += [(name, speeds.UPLOAD, link, "B/s"), (name, speeds.LATENCY, 1e-6, "s")]
    return Speeds("made up", tuple(Speed(subject, what, unit, value, value, value, 1) for subject, what, value, unit in found))


def reserved(facts: model.Model, *devices: str, weights: int = 3000, kv: int = 2000, compute: int = 1000) -> Reservation:
    on_devices = [DeviceBytes(name, weights, kv, compute) for name in devices]
    host = DeviceBytes("CPU", facts.expert_bytes, 0, 10) if devices else DeviceBytes("CPU", facts.expert_bytes + weights, kv, compute)
    return Reservation((*on_devices, host), n_nodes=100)


def given(facts: model.Model, *devices: Device, **changes: Any) -> Given:
    names = [device.name for device in devices if device.type == "GPU"]
    count = max(1, len(devices))
    made = Given(
        facts,
        devices,
        reserved(facts, *names),
        None,
        measured(facts, *names),
        available=40 * GIB,
        slots=["auto"] * count,
        device_budget=[None] * count,
        rail=[0] * count,
        disk="/",
    )
    return replace(made, **changes)


def reasons(decision: Decision) -> set[str]:
    return {one["reason"] for one in document(decision)["tensors"]}


# ---- no-go, and why ----


def test_a_dense_model_is_a_no_go(moe: model.Model) -> None:
    found = decide(given(replace(moe, experts=(), n_expert=0, expert_bytes=0), gpu()))
    assert (found.outlook.verdict, found.outlook.reason) == ("no-go", "the model has no expert tensors (a dense model)")


def test_without_a_device_and_with_enough_ram_the_pool_is_off(moe: model.Model) -> None:
    found = decide(given(moe))
    assert found.outlook.reason == "there is no device to pool on, and RAM suffices (slots would only double the memory)"
    assert reasons(found) == {f"off: {found.outlook.reason}"}
    assert len(document(found)["tensors"]) == len(moe.experts)


def test_a_model_that_fits_the_device_whole_is_a_no_go(moe: model.Model) -> None:
    whole = Reservation((DeviceBytes("GPU0", 5000, 2000, 1000),))
    exactly = gpu(free=5000 + 2000 + 1000 + 50 + 7)
    fits = given(moe, exactly, whole=whole, reserved=50, rail=[7])
    assert "whole model fits" in decide(fits).outlook.reason
    assert "whole model fits" not in decide(replace(fits, reserved=51)).outlook.reason


def test_memory_that_is_shared_with_the_host_is_a_no_go_and_counted_once(moe: model.Model) -> None:
    found = decide(given(moe, gpu("IGPU0", kind="IGPU")))
    assert found.outlook.reason == "IGPU0 shares the host's memory: there is no transfer to save"
    assert [terms.name for terms in found.terms] == ["CPU"]


def test_a_card_beside_an_integrated_one_is_used_alone(moe: model.Model) -> None:
    found = decide(given(moe, gpu("IGPU0", kind="IGPU"), gpu(), slots=["auto", 8]))
    assert {group.device for group in found.made.groups} == {"GPU0"}
    assert {group.slots for group in found.made.groups} == {8}
    assert "IGPU0" in found.notes[0]


def test_a_budget_below_what_a_token_uses_is_a_no_go(moe: model.Model) -> None:
    found = decide(given(moe, gpu(free=6000 + 10)))
    assert found.outlook.reason == "no budget for what one token uses: 10B of GPU0 for slots"


def flat_trace(facts: model.Model) -> Trace:
    rng = np.random.default_rng(3)
    ids = [np.array([rng.permutation(32)[:4] for _ in range(2000)], np.int32) for _ in range(4)]
    return Trace(Facts(), tuple(Recorded(i, "exps", 32, 4, one, single_events(one, GENERATION)) for i, one in enumerate(ids)))


def skewed_trace(facts: model.Model) -> Trace:
    """Six hot experts take all but one in fifty draws."""
    rng = np.random.default_rng(3)
    chances = np.array([0.98 / 6] * 6 + [0.02 / 26] * 26)
    ids = [np.array([rng.choice(32, 4, replace=False, p=chances) for _ in range(2000)], np.int32) for _ in range(4)]
    return Trace(Facts(), tuple(Recorded(i, "exps", 32, 4, one, single_events(one, GENERATION)) for i, one in enumerate(ids)))


def quarter(facts: model.Model) -> Device:
    return gpu(free=6000 + facts.expert_bytes // 4)


def test_flat_routing_is_a_no_go(moe: model.Model) -> None:
    found = decide(given(moe, quarter(moe), trace=flat_trace(moe)))
    assert found.outlook.verdict == "no-go", found.outlook.reason
    assert "slots would not pay" in found.outlook.reason


def test_over_a_link_faster_than_the_cpu_flat_routing_is_a_go_with_all_bytes_in_slots(moe: model.Model) -> None:
    """Without slots nothing is copied, so the first ones save more than their hits."""
    found = decide(given(moe, quarter(moe), trace=flat_trace(moe), speeds=measured(moe, "GPU0", link=8e9)))
    assert found.outlook.is_go, found.outlook.reason
    assert all(group.slots >= 4 for group in found.made.groups)
    assert sum(group.slots for group in found.made.groups) >= 4 * 8 - 1  # less what lies behind the last slots


def test_skewed_routing_is_a_go_with_slots_at_the_knee(moe: model.Model) -> None:
    found = decide(given(moe, gpu(free=6000 + moe.expert_bytes // 2), trace=skewed_trace(moe)))
    assert found.outlook.is_go, found.outlook.reason
    assert all(group.slots >= 6 for group in found.made.groups)
    assert sum(group.slots for group in found.made.groups) <= 4 * 10  # room for 16 each
    assert found.outlook.predicted
    assert found.outlook.predicted.hit_rate > 0.9


def test_a_trace_of_another_shape_is_refused(moe: model.Model) -> None:
    trace = flat_trace(moe)
    with pytest.raises(SlotpoolError, match="expected the trace to have layer 3"):
        decide(given(moe, gpu(), trace=replace(trace, groups=trace.groups[:3])))
    other = Recorded(0, "exps", 64, 4, trace.groups[0].ids, trace.groups[0].events)
    with pytest.raises(SlotpoolError, match="4 of 32 experts in layer 0, found 4 of 64"):
        decide(given(moe, gpu(), trace=replace(trace, groups=(other, *trace.groups[1:]))))


# ---- budgets ----


def test_every_term_is_in_the_document_and_the_budget_is_what_they_leave(moe: model.Model) -> None:
    (one,) = document(decide(given(moe, gpu(), reserved=500, rail=[None])))["devices"]
    assert one == {
        "name": "GPU0",
        "free": 20 * GIB,
        "weights": 3000,
        "kv": 2000,
        "compute": 1000,
        "reserved": 500,
        "rail": DEVICE_RAIL,
        "budget": 20 * GIB - 3000 - 2000 - 1000 - 500 - DEVICE_RAIL,
    }


def test_what_else_is_loaded_is_taken_off_the_first_device_alone(moe: model.Model) -> None:
    found = decide(given(moe, gpu("A"), gpu("B"), reserved=500))
    assert [terms.reserved for terms in found.terms] == [500, 0]


def slots_on(decision: Decision) -> dict[str, int]:
    return {one.name: one.slots for one in decision.made.devices}


def test_each_device_keeps_to_its_own_budget(moe: model.Model) -> None:
    slab = sum(one.slab_bytes for one in moe.layers[0])
    found = decide(given(moe, gpu("A", 6000 + 20 * slab), gpu("B", 6000 + 40 * slab)))
    assert slots_on(found) == {"A": max(g.slots for g in found.made.groups), "B": max(g.slots for g in found.made.groups)}
    assert [terms.budget for terms in found.terms] == [20 * slab, 40 * slab]
    assert sum(group.slots for group in found.made.groups) <= 60


def test_a_device_with_zero_slots_has_none(moe: model.Model) -> None:
    found = decide(given(moe, gpu("A"), gpu("B"), slots=[8, 0]))
    assert sorted({group.slots for group in found.made.groups}) == [0, 8]
    assert "off: budget" in reasons(found)


@pytest.mark.parametrize("asked", [4, 10**6, "all"])
def test_asked_for_too_much_is_scaled_down_and_never_fatal(moe: model.Model, asked: int | str) -> None:
    slab = sum(one.slab_bytes for one in moe.layers[0])
    found = decide(given(moe, gpu(free=6000 + 4 * TAILS + 40 * slab), slots=[asked], device_budget=[10**12]))
    assert {group.slots for group in found.made.groups} == {4 if asked == 4 else 10}


def test_whole_layers_and_numbers_that_were_asked_for_come_before_what_pays(moe: model.Model) -> None:
    slab = sum(one.slab_bytes for one in moe.layers[0])
    room = gpu(free=6000 + 4 * TAILS + 60 * slab)
    found = decide(given(moe, room, slots_per_layer="1=all,2=12", trace=skewed_trace(moe)))
    slots = [group.slots for group in found.made.groups]
    assert (slots[1], slots[2]) == (32, 12)
    assert 4 <= slots[0] + slots[3] <= 16
    assert {one["reason"] for one in document(found)["tensors"]} >= {"pooled 32/32", "pooled 12/32"}


def test_what_was_asked_for_by_layer_is_scaled_down_evenly_and_said(moe: model.Model) -> None:
    slab = sum(one.slab_bytes for one in moe.layers[0])
    found = decide(given(moe, gpu(free=6000 + 4 * TAILS + 24 * slab), slots_per_layer="0-1=24"))
    assert [group.slots for group in found.made.groups] == [12, 12, 0, 0]
    assert found.notes == ("slots that were asked for do not fit: 2 of 4 pools are scaled down evenly, to 50% at least",)
    assert native.fit_slots(plan.to_text(found.made), 24, [1] * 4) == [12, 12, 0, 0]


def test_roles_may_differ_and_the_plan_has_a_pool_for_each(moe: model.Model) -> None:
    found = decide(given(moe, gpu(), slots=[8], slots_per_role="down=16"))
    assert [(len(group.tensors), group.slots) for group in found.made.groups] == [(2, 8), (1, 16)] * 4


def test_a_layer_that_only_drafts_has_no_slots_and_its_reason(moe: model.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.Model, "drafting_layers", range(3, 4))
    found = decide(given(moe, gpu(), slots=[8]))
    assert len(found.made.groups) == 3
    assert "off: its layer only drafts (MTP), and drafts have no pool" in reasons(found)


def test_slots_and_the_tails_behind_them_fit_to_the_byte(moe: model.Model) -> None:
    slab = sum(one.slab_bytes for one in moe.layers[0])
    exactly = 6000 + 4 * TAILS + 40 * slab
    for free, n in ((exactly, 10), (exactly - 1, 9)):
        assert {group.slots for group in decide(given(moe, gpu(free=free))).made.groups} == {n}


def test_the_plan_file_is_one_that_the_core_takes(moe: model.Model) -> None:
    made = decide(given(moe, gpu(), slots=[8])).made
    text = plan.to_text(made)
    assert native.fit_slots(text, 10**12, [group.slab_bytes for group in made.groups]) == [8] * 4


# ---- RAM over a disk ----


def group_slabs(groups: tuple[Group, ...]) -> list[list[int]]:
    return [[tensor.slab_bytes for tensor in group.tensors] for group in groups]


def test_a_model_larger_than_memory_has_slots_in_ram(moe: model.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LEAST_RING", 1 << 16)  # else it is more than this model
    found = decide(given(moe, available=6000 + budget.MIN_RAIL + moe.expert_bytes // 2, rail=[None]))
    assert found.made.reads_files
    assert found.outlook.is_go, found.outlook.reason
    (terms,) = found.terms
    assert (terms.name, terms.weights, terms.kv, terms.compute, terms.rail) == ("CPU", 3000, 2000, 1000, budget.MIN_RAIL)
    assert terms.budget == moe.expert_bytes // 2
    assert found.outlook.plain
    assert found.outlook.plain.hit_rate == 0.916  # its page cache has the same bytes: half the experts
    assert found.outlook.break_even_hit_rate is None
    slots = [group.slots for group in found.made.groups]
    assert budget.needed(group_slabs(found.made.groups), slots) <= terms.budget
    assert budget.needed(group_slabs(found.made.groups), [n + 1 for n in slots]) > terms.budget


def test_ram_that_holds_all_experts_beside_the_rail_needs_no_slots(moe: model.Model) -> None:
    enough = 6000 + budget.MIN_RAIL + moe.expert_bytes
    assert "RAM suffices" in decide(given(moe, available=enough, rail=[budget.MIN_RAIL])).outlook.reason
    assert "RAM suffices" not in decide(given(moe, available=enough - 1, rail=[budget.MIN_RAIL])).outlook.reason


@pytest.mark.parametrize("limit", [48, 50, 52])
def test_a_control_groups_limit_is_the_budget_of_the_plan(moe: model.Model, limit: int, tmp_path: Path) -> None:
    """What is available is what the group leaves, whatever the machine has."""
    cgroup = tmp_path / "sys/fs/cgroup/box"
    cgroup.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/box\n")
    (tmp_path / "proc/self/mountinfo").write_text("30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 64000000 kB\n")
    (cgroup / "memory.max").write_text(f"{limit << 20}\n")
    (cgroup / "memory.current").write_text("0\n")
    (cgroup / "memory.stat").write_text("inactive_file 0\nactive_file 0\n")
    available = native.available_memory(str(tmp_path)).smallest
    assert available == limit << 20
    found = decide(given(moe, available=available, ram_budget="auto", rail=[1 << 20]))
    assert found.terms[0].budget == (limit << 20) - 6000 - (1 << 20)
    assert all(group.slots < 32 for group in found.made.groups)


def test_a_disk_that_was_not_measured_is_said(moe: model.Model) -> None:
    with pytest.raises(SlotpoolError, match="expected the speed of direct reads x4 of /, found that it was not measured"):
        decide(given(moe, available=110 << 20, ram_budget="auto", speeds=Speeds("x", measured(moe).all[2:])))


# ---- weights in the layout of the CPU's faster kernels ----


def faster(facts: model.Model, found: Speeds, times: float) -> Speeds:
    """`found`, and the CPU's experts and plain weights repacked, so many times as fast."""
    alone = [one for one in found.all if one.subject == "CPU" and one.unit == "B/s"]
    return found.added(
        replace(one, what=one.what + speeds.REPACKED, median=times * one.median, low=times * one.low, high=times * one.high)
        for one in alone
    )


@pytest.mark.parametrize("repack", [True, False])
def test_slots_over_a_disk_are_predicted_and_planned_in_the_layout_they_have(moe: model.Model, repack: bool) -> None:
    limited = given(moe, available=6000 + budget.MIN_RAIL + moe.expert_bytes // 2, ram_budget="auto", repack=repack)
    limited = replace(limited, speeds=measured(moe, disk=1e12))
    as_it_is, repacked = (decide(replace(limited, speeds=found)) for found in (limited.speeds, faster(moe, limited.speeds, 1.5)))
    assert (as_it_is.made.is_repacked, repacked.made.is_repacked) == (repack, repack)
    assert as_it_is.outlook.predicted
    assert repacked.outlook.predicted
    ratio = repacked.outlook.predicted.generation_tps / as_it_is.outlook.predicted.generation_tps
    assert ratio == pytest.approx(1.5 if repack else 1.0, rel=0.01)  # nearly all of a token is experts and weights


def test_what_plain_llama_cpp_maps_is_never_repacked(moe: model.Model) -> None:
    limited = given(moe, available=6000 + budget.MIN_RAIL + moe.expert_bytes // 2, ram_budget="auto")
    found = [decide(replace(limited, speeds=known)).outlook.plain for known in (limited.speeds, faster(moe, limited.speeds, 1.5))]
    assert found[0] == found[1]
    known = measured(moe, "GPU0")
    for on_device in (3000, 0):  # bytes of the other weights: without any they are the CPU's
        behind = replace(limited, devices=(gpu(free=6000 + TAILS * 4 + moe.expert_bytes // 4),))
        behind = replace(behind, reservation=reserved(moe, "GPU0", weights=on_device))
        two = [decide(replace(behind, speeds=of)).outlook for of in (known, faster(moe, known, 1.5))]
        assert two[0].plain
        assert two[0].plain == two[1].plain


def test_slots_of_chunk_experts_are_never_repacked(model_file: Callable[[syn.Spec], Path]) -> None:
    grove = model.read(model_file(syn.Spec(arch="grovemoe", n_layer=2)))
    chunks = [one for one in grove.experts if one.is_chunk]
    assert chunks
    alone = replace(grove, experts=tuple(chunks))
    found = given(alone, speeds=faster(alone, measured(alone), 1.5)).rates("CPU")
    assert found.cpu == found.plain_cpu == pytest.approx(1e9)
    both = given(grove, speeds=faster(grove, measured(grove), 1.5)).rates("CPU")
    assert 1e9 < both.cpu < 1.5e9


@pytest.mark.parametrize(("repacks", "may"), [(True, True), (False, True), (True, False)])
def test_beside_a_device_plain_llama_cpp_repacks_what_it_leaves_to_the_cpu(moe: model.Model, repacks: bool, may: bool) -> None:
    """What the pool's misses cost is the same: host memory has the file's layout. Where nothing is repacked there is no such speed."""
    small = gpu(free=6000 + TAILS * 4 + moe.expert_bytes // 4)
    known = measured(moe, "GPU0")
    asked = given(moe, small, misses="cpu", repack=may)
    as_it_is, then = (decide(replace(asked, speeds=of)).outlook for of in (known, faster(moe, known, 1.5) if repacks else known))
    assert as_it_is.plain
    assert then.plain
    assert as_it_is.break_even_hit_rate
    assert (then.plain.generation_tps > 1.2 * as_it_is.plain.generation_tps) == (repacks and may)
    assert (then.plain.generation_tps == as_it_is.plain.generation_tps) != (repacks and may)
    assert then.break_even_hit_rate == pytest.approx(1 - 1e8 / (1.5e9 if repacks and may else 1e9))
    assert then.predicted == as_it_is.predicted


def test_layers_of_a_pool_without_slots_are_not_repacked(moe: model.Model) -> None:
    known = measured(moe, "GPU0", "GPU1")
    small = 6000 + TAILS * 4 + moe.expert_bytes // 8
    asked = given(moe, gpu("GPU0", free=small), gpu("GPU1", free=small), slots=[8, 0])
    found = [decide(replace(asked, speeds=of)) for of in (known, faster(moe, known, 1.5))]
    assert 0 in {group.slots for group in found[0].made.groups}
    assert found[0].outlook.predicted
    assert found[0].outlook.predicted == found[1].outlook.predicted
