"""A program that gets the core through GGML_BACKEND_PATH: with a plan it has two devices more, without one it has a line on stderr."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotpool import native

HERE = Path(__file__).parent
PLAIN_DEVICES = "CPU 0\n"
EXIT_CODE = 7

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run_program(compile_cpp: Callable[..., Path], linked_to_ggml: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """run_program(NAME=value...) runs host_program.cpp, which loads what GGML_BACKEND_PATH names and lists the devices."""
    program = compile_cpp("host_program", [HERE / "host_program.cpp"], *linked_to_ggml)
    folder = tmp_path_factory.mktemp("cwd")
    known = {name: value for name, value in os.environ.items() if name not in ("SLOTPOOL_PLAN", "GGML_BACKEND_PATH")}

    def run(**environment: object) -> subprocess.CompletedProcess[str]:
        env = known | {"GGML_NO_BACKTRACE": "1"} | {name: str(value) for name, value in environment.items()}
        return subprocess.run([str(program)], capture_output=True, text=True, errors="replace", timeout=60, env=env, cwd=folder)

    return run


@pytest.fixture
def bad_plan(tmp_path: Path, tiny: Any) -> Callable[[str], Path]:
    """Paths that are no good as SLOTPOOL_PLAN, by what is wrong with them."""
    good = tiny.plan.read_text()

    def make(what: str) -> Path:
        path = tmp_path / "the.plan"
        match what:
            case "missing":
                pass
            case "folder":
                path.mkdir()
            case "empty":
                path.touch()
            case "binary":
                path.write_bytes(bytes(range(256)) * 16)
            case "other version":
                path.write_text(good.replace("slotpool-plan 1", "slotpool-plan 2"))
            case "cut":
                path.write_text(good[: len(good) // 2])
            case "unknown word":
                path.write_text(good + "frobnicate 3\n")
            case "no groups":
                path.write_text("slotpool-plan 1\npolicy lru\n")
        return path

    return make


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of the core on stderr; the program itself must have gone on as if there were no core."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("slotpool:")]
    assert (done.stdout, done.returncode) == (PLAIN_DEVICES, EXIT_CODE), done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("slotpool: off: Expected ")
    return lines[0].removeprefix("slotpool: off: ")


def test_the_program_alone(run_program: Run) -> None:
    done = run_program()
    assert (done.stdout, done.returncode) == (PLAIN_DEVICES, EXIT_CODE)
    assert "slotpool" not in done.stderr


def test_with_a_plan_both_devices_are_registered_after_the_cpu(run_program: Run, tiny: Any) -> None:
    done = run_program(GGML_BACKEND_PATH=native.CORE_PATH, SLOTPOOL_PLAN=tiny.plan)
    assert done.stdout == PLAIN_DEVICES + "SLOTPOOL-CPU 3\nSLOTPOOL-STORE 3\n"
    assert done.returncode == EXIT_CODE
    assert "slotpool: off" not in done.stderr


def test_without_a_plan_nothing_is_registered(run_program: Run) -> None:
    line = said(run_program(GGML_BACKEND_PATH=native.CORE_PATH))
    assert line == "Expected a plan (SLOTPOOL_PLAN names its file), found none. Nothing is pooled, nothing is registered"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("missing", "a readable plan file, found none - at "),
        ("empty", '"slotpool-plan 1"'),
        ("binary", '"slotpool-plan 1"'),
        ("other version", 'plan version 1, found version "2"'),
        ("cut", "found"),
        ("unknown word", "frobnicate"),
        ("no groups", "a plan with at least one group, found none - at "),
        ("folder", "a readable plan file, found none - at "),
    ],
)
def test_with_a_bad_plan_nothing_is_registered_and_the_line_says_why(
    run_program: Run, bad_plan: Callable[[str], Path], what: str, words: str
) -> None:
    line = said(run_program(GGML_BACKEND_PATH=native.CORE_PATH, SLOTPOOL_PLAN=bad_plan(what)))
    assert words in line
    assert "found" in line


def test_in_a_ggml_that_does_not_fit_nothing_is_registered(run_program: Run, wheel: Any, tiny: Any, tmp_path: Path) -> None:
    # a real ggml but for one name in its op table, found before the program's own by the system's loader
    for library in wheel.lib.glob("libggml*.so.0"):
        data = library.read_bytes()
        (tmp_path / library.name).write_bytes(data.replace(b"\0MUL_MAT_ID\0", b"\0MUL_MAT_IX\0"))
    done = run_program(GGML_BACKEND_PATH=native.CORE_PATH, SLOTPOOL_PLAN=tiny.plan, LD_LIBRARY_PATH=tmp_path)
    assert said(done) == "Expected ggml's op table entry of an expert matmul to be MUL_MAT_ID, found MUL_MAT_IX"
