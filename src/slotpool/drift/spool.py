"""An arm that ran alone, before the others: its logits wait in a file without a name and are read back in the order they were made.

For arms that cannot be there at the same time as the pool's: a server that serves one process, a device whose memory is taken. The
file is on a disk, never in memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from slotpool.drift.facts import Chunk, Counts
from slotpool.drift.numbers import Logits
from slotpool.drift.process import ArmProcess
from slotpool.drift.schedule import Schedule, blocks
from slotpool.errors import SlotpoolError
from slotpool.sizes import format_bytes

_ON_DISK = Path("/var/tmp")
"""Where the system keeps large files: its /tmp may be memory."""


class SpooledArm:
    """What an ArmProcess answered to a whole schedule, asked again in the same order. To be used in a with block."""

    def __init__(self, arm: ArmProcess, schedule: Schedule, on_tokens: Callable[[int], None]) -> None:
        """Runs the schedule. Raises SlotpoolError where the logits do not fit the disk."""
        self.name, self.hello = arm.name, arm.hello
        self._folder = _folder()
        self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - lives as long as the arm
        self._n_vocab = self._next_chunk = 0
        self._chunks: list[Chunk] = []
        try:
            self._run(arm, schedule, on_tokens)
        except BaseException:
            self._file.close()
            raise
        self._file.seek(0)
        self._counts, self._has_core = arm.counts(), arm.has_core()

    def _run(self, arm: ArmProcess, schedule: Schedule, on_tokens: Callable[[int], None]) -> None:
        self._chunks += [arm.chunk(ids) for ids in _told(schedule.chunks, on_tokens)]
        for text in range(len(schedule.texts)):
            for window in schedule.windows(text):
                arm.forget()
                for block in _told((block for block, _ in blocks(window)), on_tokens):
                    self._keep(arm.decode(block), schedule.n_text_tokens)

    def forget(self) -> None:
        """Nothing to forget: what comes is what came."""

    def decode(self, tokens: Sequence[int]) -> Logits:
        """Logits [n, n_vocab] of the next tokens of the schedule."""
        rows = np.empty((len(tokens), self._n_vocab), np.float32)
        content = self._file.read(rows.nbytes)
        if len(content) != rows.nbytes:
            raise SlotpoolError(f"expected logits of {len(tokens)} tokens in the file that arm {self.name} left, found its end")
        rows[:] = np.frombuffer(content, np.float32).reshape(rows.shape)
        return rows

    def chunk(self, tokens: Sequence[int]) -> Chunk:
        """The next chunk of the schedule."""
        self._next_chunk += 1
        return self._chunks[self._next_chunk - 1]

    def counts(self) -> Counts:
        return self._counts

    def has_core(self) -> bool:
        return self._has_core

    def __enter__(self) -> SpooledArm:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def _keep(self, rows: Logits, n_tokens: int) -> None:
        if not self._n_vocab:
            self._n_vocab = rows.shape[1]
            self._check_room(n_tokens * rows.shape[1] * rows.itemsize)
        self._file.write(rows.tobytes())

    def _check_room(self, n_bytes: int) -> None:
        free = shutil.disk_usage(self._folder).free
        if n_bytes > free:
            raise SlotpoolError(
                f"the logits of arm {self.name}, which runs alone, take {format_bytes(n_bytes)}, the disk has {format_bytes(free)}",
                where=str(self._folder),
                do="Try a smaller --limit, or another folder as TMPDIR.",
            )


def _folder() -> Path:
    named = os.environ.get("TMPDIR")
    return Path(named) if named else _ON_DISK if _ON_DISK.is_dir() else Path(tempfile.gettempdir())


def _told(parts: Iterable[Sequence[int]], on_tokens: Callable[[int], None]) -> Iterator[Sequence[int]]:
    """The parts, each told once it is done."""
    for part in parts:
        yield part
        on_tokens(len(part))
