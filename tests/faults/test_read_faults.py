"""Reads that go wrong in every way a system may: the right bytes come or one clear error, never others, no hang and no crash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.conftest import SIZE, Run

WAYS = ["aligned", "anywhere", "background"]
BAD = 1_000_000
"""Offset of the byte that cannot be read, or of an early end; inside a block."""


@pytest.mark.parametrize("way", WAYS)
def test_without_a_fault_reads_are_direct_and_right(run_faulty: Run, way: str) -> None:
    found = run_faulty("reads.py", way)
    assert (found["wrong"], found["errors"], found["why_buffered"], found["injected"]) == (0, [], "", 0)
    assert found["right"] > 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param({"eintr": 1}, id="interrupted"),
        pytest.param({"short": 5}, id="short"),
        pytest.param({"short": 6, "eintr": 1}, id="short and interrupted"),
    ],
)
def test_short_and_interrupted_reads_go_on(run_faulty: Run, way: str, faults: dict[str, int]) -> None:
    found = run_faulty("reads.py", way, **faults)
    assert (found["wrong"], found["errors"]) == (0, [])
    assert found["injected"] > 20


@pytest.mark.parametrize("way", WAYS)
def test_a_short_read_goes_on_at_a_whole_block_and_stays_direct(run_faulty: Run, way: str) -> None:
    # had it gone on where it stopped, the system would have refused, and the file would be buffered
    found = run_faulty("reads.py", way, short_blocks=7)
    assert (found["wrong"], found["errors"], found["why_buffered"]) == (0, [], "")
    assert found["injected"] > 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        pytest.param({"open_einval": 1}, "the file system has no direct reads", id="at open"),
        pytest.param({"einval_after": 0}, "the system refused a direct read", id="at the first read"),
        pytest.param({"einval_after": 3}, "the system refused a direct read", id="after three reads"),
        pytest.param({"einval_after": 3, "short": 8, "eintr": 1}, "", id="after three short and interrupted reads"),
        pytest.param({"stuck": 1}, "direct reads end inside a block", id="by ending inside a block"),
    ],
)
def test_a_file_whose_direct_reads_are_refused_is_read_buffered(run_faulty: Run, way: str, faults: dict[str, int], reason: str) -> None:
    found = run_faulty("reads.py", way, **faults)
    assert (found["wrong"], found["errors"]) == (0, [])
    assert found["injected"] > 0
    assert found["why_buffered"] == reason or (not reason and found["why_buffered"])


@pytest.mark.parametrize("way", WAYS)
def test_a_byte_that_cannot_be_read_fails_only_its_reads(run_faulty: Run, way: str) -> None:
    found = run_faulty("reads.py", way, eio_at=BAD)
    assert found["wrong"] == 0
    assert found["right"] > 0
    assert found["injected"] >= len(found["errors"]) > 0
    for error in found["errors"]:
        assert re.fullmatch(r"Expected \d+ bytes at offset \d+, found an error after \d+: Input/output error - at /.*/experts\.bin", error)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("more", [{}, {"short": 9, "eintr": 1}, {"open_einval": 1}])
def test_an_early_end_is_said_with_its_place(run_faulty: Run, way: str, more: dict[str, int]) -> None:
    found = run_faulty("reads.py", way, eof_at=BAD, **more)
    assert found["wrong"] == 0
    assert found["right"] > 0
    assert found["errors"]
    for error in found["errors"]:
        said = re.fullmatch(
            r"Expected (\d+) bytes at offset (\d+), found the end of the file after (\d+) - at /.*/experts\.bin\. The file was cut\?", error
        )
        assert said, error
        needed, offset, after = map(int, said.groups())
        assert after == max(BAD - offset, 0)
        assert BAD < offset + needed <= SIZE


def test_a_queued_read_is_taken_back_and_a_running_one_waited_for(run_faulty: Run, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    found = run_faulty("held.py", "go_on", gate, hold=gate)
    assert found["before"] == ["RUNNING"] + ["QUEUED"] * 5
    assert found["waits"]
    assert found["after"] == ["IDLE", "DONE", "IDLE", "DONE", "DONE", "DONE"]
    assert found["right"] == [True, True, False, True, True, True]
    assert found["untouched"] == [False, False, True, False, False, False]
    assert found["errors"] == [""]


def test_a_reader_that_goes_ends_what_runs_and_fails_what_is_queued(run_faulty: Run, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    found = run_faulty("held.py", "close", gate, hold=gate)
    assert found["before"] == ["RUNNING"] + ["QUEUED"] * 5
    assert found["waits"]
    assert found["after"] == ["DONE", "FAILED", "IDLE", "FAILED", "FAILED", "FAILED"]
    assert found["right"] == [True] + [False] * 5
    assert found["untouched"] == [False] + [True] * 5
    assert found["errors"] == ["", "Expected the read to be served, found its reader closed"]
