"""`make bench` that is interrupted: the benchmark that runs may put away what it made, and the next interrupt ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHILD = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
try:
    (folder / "began").touch()
    time.sleep(60)
finally:
    (folder / "tidying").touch()
    time.sleep(float(sys.argv[2]))
    (folder / "tidy").touch()
"""


def started(folder: Path, seconds: str) -> subprocess.Popen[bytes]:
    """A run in a process group of its own, like that of a terminal, whose child needs so long to put things away."""
    command = [sys.executable, "-c", CHILD, str(folder), seconds]
    main = f"from benchmarks.__main__ import run_child\nrun_child({command!r})"
    # a shell may have left interrupts ignored, which children would inherit
    text = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{main}"
    return subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)


def interrupt_when(path: Path, run: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)


def test_the_benchmark_gets_time_to_put_things_away(tmp_path: Path) -> None:
    run = started(tmp_path, "1.0")  # more than the quarter of a second that Python itself would give
    interrupt_when(tmp_path / "began", run)
    assert run.wait(60) != 0
    assert (tmp_path / "tidy").exists()


def test_the_next_interrupt_ends_it(tmp_path: Path) -> None:
    run = started(tmp_path, "50.0")
    interrupt_when(tmp_path / "began", run)
    interrupt_when(tmp_path / "tidying", run)
    assert run.wait(40) != 0
    assert not (tmp_path / "tidy").exists()
