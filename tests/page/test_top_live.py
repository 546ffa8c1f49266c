"""`slotpool top` on a terminal: it draws again and again, ends on q or Ctrl-C, and gives the terminal back."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from struct import pack

import pytest

import slotpool
from slotpool.native import Session

PLAN = """slotpool-plan 1
group layer=0 pass=exps device=CPU slots=6 n_expert=16
tensor blk.0.ffn_up_exps.weight role=up slab=4096
"""
ENTER, HOME, LEAVE = b"\x1b[?1049h", b"\x1b[H", b"\x1b[?1049l"
TOP = """
import sys
from pathlib import Path
from slotpool import page
from slotpool.cli import main
page.files.directories = lambda: [Path({folder!r})]
sys.exit(main({args!r}))
"""


class Terminal:
    """`slotpool top` on a terminal of `columns` x `rows`."""

    def __init__(self, folder: Path, *args: str, columns: int = 200, rows: int = 40) -> None:
        self.ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(theirs)
        code = TOP.format(folder=str(folder), args=["top", *args])
        env = os.environ | {"PYTHONPATH": str(Path(slotpool.__file__).parents[1]), "TERM": "xterm"}
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True, preexec_fn=control
        )
        self.theirs, self.seen = theirs, b""

    def read_until(self, n_frames: int) -> list[str]:
        """The screens that it drew, once there are so many."""
        ends = time.monotonic() + 60
        while self.seen.count(HOME) < n_frames + 1 and time.monotonic() < ends and self.process.poll() is None:
            self.read(0.1)
        return [frame.decode() for frame in self.seen.split(HOME)[1:]]

    def read(self, seconds: float) -> None:
        while select.select([self.ours], [], [], seconds)[0]:
            self.seen += os.read(self.ours, 1 << 16)

    def end(self, key: bytes) -> int:
        os.write(self.ours, key)
        code = self.process.wait(60)
        self.read(0.1)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


def control() -> None:
    ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C on it reaches the process


@pytest.fixture
def session(runtime: Path) -> Iterator[Session]:
    made = Session(PLAN)
    yield made
    made.close()


@pytest.mark.parametrize("key", [b"q", b"Q", b"\x03", b"\x04"], ids=["q", "Q", "Ctrl-C", "Ctrl-D"])
@pytest.mark.usefixtures("session")
def test_view_is_drawn_until_somebody_leaves(runtime: Path, key: bytes) -> None:
    terminal = Terminal(runtime / "slotpool", "--interval", "0.1")
    try:
        frames = terminal.read_until(2)
        assert len(frames) >= 2
        assert all(f"{os.getpid()}  python" in frame for frame in frames[:2])
        assert terminal.end(key) == 0
        assert terminal.seen.startswith(ENTER)
        assert terminal.seen.rstrip(b"\r\n").endswith(LEAVE)
        assert termios.tcgetattr(terminal.theirs) == terminal.before
    finally:
        terminal.close()


@pytest.mark.usefixtures("session")
def test_view_is_cut_to_the_terminal(runtime: Path) -> None:
    terminal = Terminal(runtime / "slotpool", "--interval", "0.1", "--layers", "--tensors", columns=60, rows=10)
    try:
        lines = terminal.read_until(2)[0].replace("\x1b[K", "").replace("\x1b[J", "").split("\r\n")
        assert len(lines) == 10
        assert lines[-1] == ""
        assert max(map(len, lines)) <= 60
        assert lines[-3] == "..."
        assert lines[-2].endswith("q: quit")
        assert terminal.end(b"q") == 0
    finally:
        terminal.close()


@pytest.mark.usefixtures("session")
def test_process_that_ends_leaves_the_view(runtime: Path, session: Session) -> None:
    terminal = Terminal(runtime / "slotpool", "--interval", "0.1")
    try:
        terminal.read_until(1)
        session.close()
        n_seen = terminal.seen.count(HOME)
        frames = terminal.read_until(n_seen + 3)
        assert "no process of this user uses a pool" in frames[n_seen + 1]
        assert str(os.getpid()) not in frames[n_seen + 1]
        assert terminal.end(b"q") == 0
    finally:
        terminal.close()
