"""What tests of the stats page share: a directory for the pages of one test, and processes that use a pool until they are told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import slotpool
from slotpool import page

ROOT = Path(__file__).resolve().parents[2]
DEMO = Path(slotpool.__file__).parent / "data" / "demo.gguf"
DECODING = f"""
import slotpool
llm = slotpool.load({str(DEMO)!r}, 12, n_ctx=512, n_threads=1)
def decode(n):
    llm.reset()
    llm.eval(list(range(3, 8)))
    for token in range(n):
        llm.eval([token % 200])
"""
"""The beginning of a program that decodes on one thread with 12 of 24 slots."""


class Program:
    """A Python process of its own that says `ready`, and goes on with a line of its stdin."""

    def __init__(self, text: str, runtime: Path, **variables: str) -> None:
        path = os.pathsep.join(map(str, (Path(slotpool.__file__).parents[1], ROOT)))
        given = os.environ | {"PYTHONPATH": path, "XDG_RUNTIME_DIR": str(runtime)} | variables
        self.process = subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=given, cwd=runtime
        )
        self.pid = self.process.pid

    def line(self) -> str:
        """The next line that it prints; fails when it ends instead."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        return line.strip()

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        """Its exit code, after it was told to go on to its end."""
        self.go_on()
        return self.process.wait(60)


Start = Callable[..., Program]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pages of this process and of the programs of a test go."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def start(runtime: Path) -> Iterator[Start]:
    """start(text, VARIABLE=value...) starts a program; none survives the test."""
    programs: list[Program] = []

    def started(text: str, **variables: str) -> Program:
        programs.append(Program(text, runtime, **variables))
        return programs[-1]

    yield started
    for program in programs:
        program.process.kill()
        program.process.communicate()


def pages_in(runtime: Path) -> list[page.Page]:
    """The pages of a test's programs. Nothing in their directory may be unreadable."""
    found = page.look([runtime / "slotpool"])
    assert found.problems == ()
    return list(found.pages)
