"""`make bench`: every benchmark is known, one that fails stops none, and what is missing is said."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import __main__ as runner
from benchmarks import one
from benchmarks.cgroup import SkippedError
from benchmarks.order import ALL, Entry, duration
from slotpool.report.kinds import KINDS

ROOT = Path(__file__).parents[2]
THREE = [Entry("a", 1, "x"), Entry("b", 2, "y"), Entry("c", 3, "z")]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return names | {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_every_benchmark_can_be_run_and_shown(entry: Entry) -> None:
    assert {"run", "line"} <= functions(ROOT / "benchmarks" / f"{entry.name}.py")
    assert entry.name in KINDS


def test_no_benchmark_is_forgotten() -> None:
    with_run = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if {"run", "line"} <= functions(path)}
    assert with_run == {entry.name for entry in ALL}


def test_what_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    codes = iter([0, -11, one.SKIPPED])
    monkeypatch.setattr(runner, "run_child", lambda _: next(codes))
    states = runner.run_all(THREE)
    assert states == {"a": "done", "b": "failed", "c": "skipped"}
    assert runner.summary(states) == "1 of 3 benchmarks done; skipped: c; failed: b"
    err = capsys.readouterr().err
    assert "[2/3] b: y; about 2 s (0 s passed, about 5 s left)" in err
    assert "b: failed (exit code -11)" in err


@pytest.mark.parametrize(("states", "code"), [(["done", "skipped"], 0), (["done", "failed"], 1), (["skipped", "skipped"], 0)])
def test_the_exit_code_says_whether_one_failed(states: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(runner, "run_all", lambda entries: dict(zip("ab", states, strict=True)))
    monkeypatch.setattr(runner, "_write_documents", lambda: not written.append(1))
    assert runner.main([]) == code
    assert len(written) == ("done" in states)


def test_an_unknown_name_is_an_error_that_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["bookkeeping", "bookkeepin"]) == 2
    assert "bookkeeping, " in capsys.readouterr().err


def test_a_benchmark_that_lacks_something_is_skipped_with_its_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Lacking:
        @staticmethod
        def run() -> None:
            raise SkippedError("no such thing here")

    monkeypatch.setattr(one, "import_module", lambda _: Lacking)
    assert one.main("x") == one.SKIPPED
    assert capsys.readouterr().out == "x: skipped: no such thing here\n"


def test_durations_are_words() -> None:
    assert [duration(seconds) for seconds in (3, 89, 90, 2040)] == ["3 s", "89 s", "2 min", "34 min"]
