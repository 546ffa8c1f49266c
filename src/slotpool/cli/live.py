"""A view that is drawn again and again on a terminal, until q or Ctrl-C: plain ANSI, nothing to install.

Knows nothing of what it shows. The terminal is given back as it was, whatever ends the view.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.cells import set_cell_size

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's second page without a cursor, and back."""
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """The whole terminal, for the length of a with block."""

    def __init__(self) -> None:
        self._before: Any = None

    def __enter__(self) -> Screen:
        if sys.stdin is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            keys = termios.tcgetattr(sys.stdin)
            keys[3] &= ~(termios.ICANON | termios.ECHO)  # a key at a time; Ctrl-C stays an interrupt
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, keys)
        self._write(_ENTER)
        return self

    def show(self, lines: Sequence[str]) -> None:
        """Draws `lines`, cut to what the terminal has room for. Its last row stays empty."""
        columns, rows = shutil.get_terminal_size()
        shown = [*lines, ""] if len(lines) < rows else [*lines[: max(0, rows - 3)], "...", lines[-1], ""]
        # each line is cleared before it is written: behind a full one the cursor stands on its last character
        self._write(_HOME + "\n".join(_CLEAR_LINE + _cut(line, columns) for line in shown) + _CLEAR_BELOW)

    def is_ended(self, seconds: float) -> bool:
        """Waits so long, or until somebody wants to leave."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._before is None:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b"\x04", b""):
                return True
        return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        """An interrupt is how one leaves, not a failure."""
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
        self._write(_LEAVE)
        return kind is KeyboardInterrupt

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _cut(line: str, columns: int) -> str:
    return set_cell_size(line, columns).rstrip()
