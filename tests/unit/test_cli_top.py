"""`slotpool top`: what it shows of pages, as tables and as JSON, and that nothing to show is no failure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool import page
from slotpool.cli import main, top
from slotpool.native import GroupCounts, PhaseCounts, Session
from slotpool.pool_stats import Stats

PLAN = """slotpool-plan 1
group layer=0 pass=exps device=CPU slots=6 n_expert=16
tensor blk.0.ffn_up_exps.weight role=up slab=4096
group layer=1 pass=exps device=CPU slots=6 n_expert=16
tensor blk.1.ffn_up_exps.weight role=up slab=4096
off blk.2.ffn_up_exps.weight off: nobody wanted it
"""
BEFORE = PhaseCounts(events=10, lookups=40, hits=30, misses=10, bytes_copied=10 * 4096, bytes_saved=30 * 4096)
NOW = PhaseCounts(events=5, lookups=20, hits=18, misses=2, bytes_copied=2 * 4096, bytes_saved=18 * 4096, wait_ns=2_000_000)


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Session]]:
    """Two sessions of this process, the only ones that top sees."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(page.files, "directories", lambda: [tmp_path / "slotpool"])
    made = [Session(PLAN), Session(PLAN.replace("slots=6", "slots=9", 1))]
    yield made
    for session in made:
        session.close()


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page.files, "directories", lambda: [tmp_path])
    return tmp_path


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks every layer does NOW, after BEFORE."""
    looks = [BEFORE, BEFORE + NOW]

    def look() -> page.Pages:
        counts = looks.pop(0)
        found = page.look()
        return replace(
            found, pages=tuple(replace(one, counts=tuple(with_counts(each, counts) for each in one.counts)) for one in found.pages)
        )

    monkeypatch.setattr(top, "look", look)


def with_counts(group: GroupCounts, counts: PhaseCounts) -> GroupCounts:
    return replace(group, generation=counts, refused=3, admitted=counts.misses, n_tensors=1)


def test_nobody_is_no_failure(nobody: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 0
    assert capsys.readouterr().out == "no process of this user uses a pool\n"
    assert main(["top", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"processes": []}


def test_json_has_a_process_for_every_session(sessions: list[Session], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--json", "--interval", "0.05"]) == 0
    processes = json.loads(capsys.readouterr().out)["processes"]
    assert [one["session"] for one in processes] == [session.number for session in sessions]
    for one in processes:
        assert list(one) == ["pid", "program", "model", "started", "session", "stats", "window"]
        assert list(one["stats"]) == list(one["window"]["stats"]) == list(Stats.__annotations__)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", one["started"])
    assert [layer["slots"] for layer in processes[1]["stats"]["layers"]] == [9, 6]


@pytest.mark.usefixtures("sessions", "counting")
def test_window_and_totals_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--json", "--interval", "0.05"]) == 0
    first = json.loads(capsys.readouterr().out)["processes"][0]
    assert (first["stats"]["lookups"], first["stats"]["hit_rate"]) == (120, 0.8)
    assert (first["window"]["stats"]["lookups"], first["window"]["stats"]["hit_rate"]) == (40, 0.9)
    assert (first["stats"]["refused"], first["window"]["stats"]["refused"]) == (6, 0)
    assert first["window"]["seconds"] >= 0.05


@pytest.mark.usefixtures("sessions", "counting")
def test_table_shows_the_rates_of_the_window(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 102.0])
    monkeypatch.setattr(top, "Look", lambda found: page.Look(found, next(clock)))
    assert main(["top", "--once", "--interval", "0.05"]) == 0
    header, _, first, second = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "pid"
    cells = re.split(r"\s{2,}", first.strip())
    assert cells[3:11] == ["6/16", "90.0%", "80.0%", "20", "8KiB", "72KiB", "6", "0.2%"]
    assert "6-9/16" in second


@pytest.mark.usefixtures("sessions")
def test_layers_devices_and_tensors_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--interval", "0.05", "--layers", "--tensors"]) == 0
    out = capsys.readouterr().out
    assert out.count(": devices\n") == out.count(": layers\n") == out.count(": tensors\n") == 2
    assert re.search(r"^blk\.2\.ffn_up_exps\.weight +off +0 +0 +0B +off: nobody wanted it$", out, re.MULTILINE)
    assert re.search(r"^blk\.0\.ffn_up_exps\.weight +off .*off: not in the store: ", out, re.MULTILINE)


def test_unreadable_pages_are_notes_beside_the_document(
    sessions: list[Session], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slotpool" / "1-1.page").symlink_to("/etc/passwd")
    assert main(["top", "--json", "--interval", "0.05"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["processes"]) == 2
    assert len(err.splitlines()) == 1
    assert "1-1.page" in err


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "x"])
def test_interval_must_be_one(nobody: Path, capsys: pytest.CaptureFixture[str], interval: str) -> None:
    assert main(["top", "--interval", interval]) == 2
    assert "--interval" in capsys.readouterr().err
