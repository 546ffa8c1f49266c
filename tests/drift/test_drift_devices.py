"""`slotpool drift` with slots on a chaos device: what the placement moves and what the pool does are told apart.

A device that signs its results changes last bits of the rows that it computes, as a GPU's kernels would: plain llama.cpp on it then
differs from plain llama.cpp on the CPU, and from it whatever the CPU computed instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotpool.cli import main
from testkit import syn
from testkit.chaos import library
from tests.drift.test_drift import DEMO, run

ON_DEVICE = ("--device", "CHAOS0", "--rail", "0", "--limit", 20, "--ctx", 64, "--chunks", 1)


@pytest.fixture(autouse=True)
def chaos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every arm's process gets the device, as any program of a user with a backend from outside would."""
    monkeypatch.setenv("GGML_BACKEND_PATH", str(library()))


@pytest.fixture
def model(model_file: Callable[[syn.Spec], Path]) -> Path:
    """Experts of F32: no activation is quantised between two of them, so no signature is rounded away."""
    return model_file(syn.Spec(n_layer=3, n_expert=16, n_expert_used=4, types={"*": "F32"}))


def names(found: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [(arm["name"], arm["where"], arm["has_core"]) for arm in found["arms"]]


def test_copied_misses_are_exact_and_signed_placement_is_not_the_pools(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOS_SIGN", "1")
    code, found = run(capsys, model, *ON_DEVICE, "--miss", "copy")
    assert (code, found["verdict"], found["expected"]) == (0, "exact", "exact")
    assert names(found) == [("cpu", "CPU", False), ("device", "CHAOS0", False), ("pool", "CHAOS0", True)]
    assert found["pool_share"]["kld_max"] == 0.0
    assert found["pool_share"]["tokens_that_differ"] == 0
    assert found["placement"]["tokens_that_differ"] > 0
    assert found["placement"]["first_difference"]["text"] == "prose.txt"
    # all of the drift is the placement's
    assert found["kld"] == found["placement"]["kld"]
    assert found["evictions"] > found["steps"]


def test_rows_of_the_cpu_are_the_pools_share_and_no_more_than_equivalent(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which misses have a slot by then is the clock's to say, but the first token of a cold pool finds none."""
    monkeypatch.setenv("CHAOS_SIGN", "1")
    code, found = run(capsys, model, *ON_DEVICE, "--miss", "cpu")
    assert found["stats"]["served"]["cpu"] > 0
    assert (code, found["verdict"], found["expected"]) == (0, "equivalent", "equivalent")
    assert found["pool_share"]["first_difference"]["index"] == 0
    assert 0 < found["pool_share"]["kld_max"] < 1
    code, found = run(capsys, model, *ON_DEVICE, "--miss", "cpu", "--expect", "exact")
    assert (code, found["verdict"], found["is_met"]) == (1, "equivalent", False)


def test_a_device_that_computes_like_the_cpu_moves_nothing(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, model, *ON_DEVICE, "--miss", "auto")
    assert (code, found["verdict"], found["placement"]["tokens_that_differ"]) == (0, "exact", 0)


def test_streamed_prompts_are_the_same_with_empty_and_with_full_slots(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOS_SIGN", "1")
    code, found = run(capsys, model, *ON_DEVICE, "--miss", "copy", "--prefill", "stream")
    assert found["stats"]["prompt"]["lookups"] > 0
    assert (code, found["verdict"], found["prompts"]["same_after"]) == (0, "exact", True)


def test_damage_on_the_device_is_the_pools_and_found(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOS_SIGN", "1")
    code, found = run(capsys, model, *ON_DEVICE, "--miss", "copy", "--damage", "swap")
    assert (code, found["verdict"]) == (1, "different")
    assert found["pool_share"]["tokens_that_differ"] > 0
    assert found["pool_share"]["first_difference"]["index"] >= 8


def test_a_pool_on_the_cpu_does_not_see_the_device(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does its reference: both would otherwise give large batches to it, and it signs."""
    monkeypatch.setenv("CHAOS_SIGN", "1")
    code, found = run(capsys, DEMO, "--device", "CPU", "--limit", 16, "--chunks", 1)
    assert (code, found["verdict"], found["prompts"]["same_as_plain"]) == (0, "exact", True)
    assert names(found) == [("cpu", "CPU", False), ("pool", "CPU", True)]


def test_where_plain_does_not_fit_the_device_the_shares_are_not_told_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots of 6 of 24 experts fit, all experts do not."""
    monkeypatch.setenv("CHAOS_TOTAL_BYTES", str(11 << 20))
    code, found = run(capsys, DEMO, *ON_DEVICE, "--miss", "copy", "--slots", "6")
    assert names(found) == [("cpu", "CPU", False), ("pool", "CHAOS0", True)]
    assert found["placement"] is None
    assert found["pool_share"]["kld_max"] is None
    assert "arm device: the engine could not load the model" in found["pool_share"]["reason"]
    # this device computes like the CPU: the same bits say more than any split could
    assert (code, found["verdict"]) == (0, "exact")


def test_the_table_says_what_moved(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_SIGN", "1")
    assert main(["drift", str(model), "--threads", "1", *map(str, ON_DEVICE), "--miss", "copy"]) == 0
    out = capsys.readouterr().out
    assert "Placement, the device against the CPU, both plain: " in out
    assert "Pool, against plain llama.cpp on the device: exactly zero, 40 tokens with the same bits." in out
    assert "CPU_REPACK off" in out
    assert "Reference: cpu 0 lookups, no core" in out
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(out)
