"""Reads a trace file: `open_trace(path)` gives the whole trace, or says where the file is damaged.

A file whose writer was stopped has no end and perhaps half a block: what is whole is read, and the trace says that it is not complete.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.trace import blocks, sections
from slotpool.trace.blocks import CutError, DamageError
from slotpool.trace.facts import Events, Facts, Group, Segment, Trace
from slotpool.trace.sections import GroupKind, Section, Totals

MAX_UNPACKED = 1 << 34
"""Bytes of all blocks together, unpacked: a small file may claim to unpack to anything."""


def open_trace(path: str | os.PathLike[str], *, salvage: bool = False) -> Trace:
    """The trace in the file at `path`. Its groups are in the order of layer and pass.

    A file that ends inside a block gives what stands before, with `is_complete` false. Other damage is a SlotpoolError that says
    where; with `salvage` what stands before it is given in the same way.
    """
    try:
        with open(_regular(path), "rb") as file:
            return _read(file, path, salvage)
    except OSError as error:
        raise SlotpoolError(f"cannot read the trace: {error.strerror}", where=printable(path)) from error


def is_trace(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like a trace; False for what cannot be read."""
    try:
        with open(_regular(path), "rb") as file:
            return file.read(len(blocks.MAGIC)) == blocks.MAGIC
    except (OSError, SlotpoolError):
        return False


def _regular(path: str | os.PathLike[str]) -> str:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise SlotpoolError("expected a trace file, found a directory, a device or a pipe", where=printable(path))
    return os.fspath(path)


def _read(file: BinaryIO, path: str | os.PathLike[str], salvage: bool) -> Trace:
    try:
        facts = blocks.read_header(file)
    except DamageError as damage:
        raise SlotpoolError(str(damage), where=printable(path)) from damage
    gathered = _Gathered(facts)
    start = file.tell()
    try:
        while (block := blocks.read_block(file)) is not None:
            gathered.add(block)
            start = file.tell()
    except CutError:
        gathered.totals = None
    except DamageError as damage:
        if not salvage:
            raise _damaged(damage, path, start) from damage
        gathered.totals = None
    try:
        return gathered.trace()
    except DamageError as damage:
        raise _damaged(damage, path, start) from damage


def _damaged(damage: DamageError, path: str | os.PathLike[str], start: int) -> SlotpoolError:
    do = "--salvage reads what stands before it."
    return SlotpoolError(f"the trace is damaged at byte {start}: {damage}", where=printable(path), do=do, exit_code=REFUSED)


class _Gathered:
    """The contents of the blocks so far."""

    def __init__(self, facts: Facts) -> None:
        self.totals: Totals | None = None
        self._facts = facts
        self._kinds: dict[int, GroupKind] = {}
        self._sections: dict[int, list[Section]] = {}
        self._segments: list[Segment] = []
        self._n_dropped = 0
        self._n_bytes = 0

    def add(self, block: blocks.Block) -> None:
        """Takes a block. Raises DamageError, and has then taken nothing of it."""
        if self.totals is not None:
            raise DamageError("there is more after the end")
        self._n_bytes += len(block.payload)
        if self._n_bytes > MAX_UNPACKED:
            raise DamageError(f"the blocks unpack to more than {MAX_UNPACKED} bytes")
        if block.kind == blocks.GROUP:
            self._add_group(sections.decode_group(block.payload))
        elif block.kind == blocks.EVENTS:
            found, self._n_dropped = sections.decode_events(block.payload, self._kinds)
            for section in found:
                self._sections[section.kind.number].append(section)
        elif block.kind == blocks.SEGMENT:
            self._add_segment(sections.decode_segment(block.payload))
        else:
            self._end(sections.decode_end(block.payload))

    def _add_group(self, kind: GroupKind) -> None:
        if kind.number in self._kinds or any((kind.layer, kind.pass_) == (other.layer, other.pass_) for other in self._kinds.values()):
            raise DamageError("a group is named twice")
        self._kinds[kind.number] = kind
        self._sections[kind.number] = []

    def _add_segment(self, segment: Segment) -> None:
        if self._segments and segment.first_ubatch < self._segments[-1].first_ubatch:
            raise DamageError("segments are not in order")
        self._segments.append(segment)

    def _end(self, totals: Totals) -> None:
        found = [section for group in self._sections.values() for section in group]
        n_events, n_rows = sum(len(section.events) for section in found), sum(len(section.ids) for section in found)
        if (n_events, n_rows) != totals[:2]:
            raise DamageError(f"expected {totals.n_events} events and {totals.n_rows} rows, found {n_events} and {n_rows}")
        self._n_dropped = totals.n_dropped
        self.totals = totals

    def trace(self) -> Trace:
        """Everything as one trace. Raises DamageError where the events of a stream are not in order."""
        kinds = sorted(self._kinds.values(), key=lambda kind: (kind.layer, kind.pass_ != "exps"))
        groups = tuple(_group(kind, self._sections.pop(kind.number)) for kind in kinds)
        return Trace(self._facts, groups, tuple(self._segments), self.totals is not None, self._n_dropped)


def _group(kind: GroupKind, found: Sequence[Section]) -> Group:
    return Group(
        layer=kind.layer,
        pass_=kind.pass_,
        n_expert=kind.n_expert,
        n_expert_used=kind.n_expert_used,
        ids=_joined([section.ids for section in found], np.int32, kind.n_expert_used),
        events=_joined_events([section.events for section in found]),
        weights=_joined([section.weights for section in found], np.float32, kind.n_expert_used) if kind.has_weights else None,
        ranking=_joined([section.ranking for section in found], np.int32, kind.n_expert) if kind.has_ranking else None,
    )


def _joined(arrays: Sequence[NDArray[Any] | None], dtype: type, width: int) -> NDArray[Any]:
    parts = [array for array in arrays if array is not None]
    joined: NDArray[Any] = np.empty((sum(len(part) for part in parts), width), dtype)
    row = 0
    for part in parts:
        joined[row : row + len(part)] = part
        row += len(part)
    return joined


def _joined_events(parts: Sequence[Events]) -> Events:
    if not parts:
        empty = np.empty(0, np.int64)
        return Events(empty, empty.astype(np.int32), empty.astype(np.uint8), empty.astype(np.int32), np.zeros(1, np.int64))
    events = Events(
        ubatch=np.concatenate([part.ubatch for part in parts]),
        stream=np.concatenate([part.stream for part in parts]),
        phase=np.concatenate([part.phase for part in parts]),
        n_tokens=np.concatenate([part.n_tokens for part in parts]),
        first_row=np.concatenate([[0], np.cumsum(np.concatenate([part.n_rows for part in parts]))]).astype(np.int64),
    )
    _check_order(events)
    return events


def _check_order(events: Events) -> None:
    """An ubatch asks a group once, and comes after the ones before it in its stream."""
    by_stream = np.argsort(events.stream, kind="stable")
    is_same = np.diff(events.stream[by_stream]) == 0
    if (np.diff(events.ubatch[by_stream])[is_same] <= 0).any():
        raise DamageError("the events of a group are not in order")
