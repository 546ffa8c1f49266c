"""Probe, reservation and plan on chaos devices, where every byte is counted. Times are never looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slotpool import native, speeds
from testkit import syn
from testkit.chaos.process import process
from tests.planning import on_chaos

SPEC = syn.Spec(n_layer=4, n_expert=16, n_expert_used=4)
BIG = syn.Spec(n_layer=4, n_expert=64, n_expert_used=4, n_ff_exp=512)
ModelFile = Callable[[syn.Spec], Path]


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Iterator[ProcessPoolExecutor]:
    with process(getattr(request, "param", {})) as made:
        yield made


def test_copies_are_the_bytes_that_cross_the_link(chaos: ProcessPoolExecutor) -> None:
    slab, up, down = chaos.submit(on_chaos.link_traffic, 5).result()
    assert (up, down) == (5 * slab, 5 * slab)


def test_experts_are_three_one_token_matmuls_a_graph_without_a_hazard(chaos: ProcessPoolExecutor) -> None:
    amount, nodes, hazard = chaos.submit(on_chaos.expert_nodes).result()
    assert nodes == [("MUL_MAT_ID", 1)] * 3
    assert amount == 3 * 4 * (256 // 32 * 34 * 64)
    assert hazard == ""


def test_what_is_measured_leaves_no_memory_behind(chaos: ProcessPoolExecutor) -> None:
    before, during, after = chaos.submit(on_chaos.memory_left).result()
    assert during > before + 12345
    assert after == before


@pytest.mark.parametrize("chaos", [{"total_bytes": 1 << 20}], indirect=True)
def test_a_device_without_room_is_a_line_and_no_crash(chaos: ProcessPoolExecutor) -> None:
    experts, copy, pinned, filled = chaos.submit(on_chaos.refusals).result()
    assert experts == "SlotpoolError: CHAOS0 has no memory for it"
    assert copy == "SlotpoolError: CHAOS0 has no memory for 4194304 bytes"
    assert pinned == "SlotpoolError: CHAOS0 has no host memory of its own"
    assert filled == "None"


@pytest.mark.parametrize("chaos", [{"devices": 2}], indirect=True)
def test_every_device_is_measured_alone_and_beside_the_cpus_experts(chaos: ProcessPoolExecutor) -> None:
    found = chaos.submit(on_chaos.all_speeds).result()
    assert [failed for *_, failed in found if failed] == []
    names = {(subject, what) for subject, what, _ in found}
    first = speeds.experts("Q8_0", 2048, 768, 8)
    for device in ("CHAOS0", "CHAOS1"):
        alone = {(device, what) for what in on_chaos.NAMES}
        beside = {(device, speeds.UPLOAD + speeds.WITH_EXPERTS), (device, first + speeds.WITH_UPLOAD), (device, first)}
        assert names >= alone | beside
    assert {what for subject, what in names if subject == "CPU"} >= {speeds.READ, speeds.NODE, first}


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        syn.Spec(arch="gpt-oss", n_layer=4),
        syn.Spec(arch="deepseek2", n_layer=2),
        syn.Spec(arch="qwen3next", n_layer=4),
        syn.Spec(arch="gemma4", n_layer=6),
    ],
    ids=lambda spec: spec.arch,
)
@pytest.mark.parametrize(("n_ctx", "n_seq"), [(512, 1), (4096, 4)])
def test_kv_and_compute_are_what_a_real_context_takes(
    chaos: ProcessPoolExecutor, model_file: ModelFile, spec: syn.Spec, n_ctx: int, n_seq: int
) -> None:
    kv, compute = chaos.submit(on_chaos.reserved_and_taken, model_file(spec), n_ctx, n_seq).result()
    assert "CHAOS0" in kv
    assert kv["CHAOS0"][0] > 0
    for predicted, logged in (*kv.values(), *compute.values()):
        assert predicted == pytest.approx(logged * 2**20, abs=0.011 * 2**20)  # the log has two decimals


@pytest.mark.parametrize("n_slots", [5, 9])
def test_a_plan_that_runs_keeps_to_the_memory_it_was_made_for(chaos: ProcessPoolExecutor, model_file: ModelFile, n_slots: int) -> None:
    found: dict[str, Any] = chaos.submit(on_chaos.planned_and_run, model_file(SPEC), n_slots).result()
    assert found["document"]["predicted"]["generation_tps"] > 0
    assert {one["slots"] for one in found["document"]["tensors"]} == {n_slots}
    assert found["slots"] == [n_slots] * 4
    assert found["lookups"] == 40 * 4 * 4
    assert found["peak"] <= found["may_take"]
    assert native.fit_slots(found["text"], 10**12, [1000] * 4) == [n_slots] * 4


def test_groups_without_slots_stay_in_host_memory(chaos: ProcessPoolExecutor, model_file: ModelFile) -> None:
    """On the device they would take the memory that the budget counts as free."""
    counts, peak, expert_bytes = chaos.submit(on_chaos.groups_without_slots, model_file(BIG)).result()
    assert counts == [(8, 80, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)]
    assert peak < expert_bytes


@pytest.mark.parametrize("chaos", [{"total_bytes": 256 << 20}], indirect=True)
def test_filling_a_device_ends_with_less_than_a_step_free_and_gives_everything_back(chaos: ProcessPoolExecutor) -> None:
    reason, steps, left = chaos.submit(on_chaos.cliff).result()
    assert reason in ("full", "slow")  # a busy machine may look like a cliff
    assert steps[0][0] == 0
    assert all(before[0] < after[0] and before[1] > after[1] for before, after in pairwise(steps))
    assert reason == "slow" or steps[-1][1] < 8 << 20
    assert left == 0
