"""Writes a trace as it comes: a run that is killed leaves a file that can be read up to its last block.

Does not record (that is `slotpool.recording`): whoever has events adds them here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotpool.errors import SlotpoolError, printable
from slotpool.trace import blocks, sections
from slotpool.trace.facts import Events, Facts, Group, Ids, Segment, Trace, Weights, events_of
from slotpool.trace.sections import MAX_EXPERTS, MAX_GROUPS, GroupKind, Section, Totals

FLUSH_BYTES = 1 << 20
FLUSH_SECONDS = 2.0
"""A block is written at the end of an ubatch when it has this many bytes or is this old; a killed run loses no more."""
_LARGEST_BLOCK = 1 << 26
"""Bytes at which a block is written in the middle of an ubatch: full rankings of a long prompt."""


class Event(NamedTuple):
    """One group in one ubatch. `ids` [n_rows, k], `weights` [n_rows, k], `ranking` [n_rows, n_expert]."""

    layer: int
    pass_: str
    n_expert: int
    ubatch: int
    phase: int
    n_tokens: int
    ids: Ids
    weights: Weights | None = None
    ranking: NDArray[np.int32] | None = None
    stream: int = 0


class TraceWriter:
    """A trace file that is being written; use it in a `with`, which writes its end."""

    def __init__(self, path: str | os.PathLike[str], facts: Facts, *, force: bool = False) -> None:
        """Raises SlotpoolError when the file is there already (unless `force`), or cannot be written."""
        self._where = printable(path)
        self._file = _created(path, force)
        self._kinds: dict[tuple[int, str], GroupKind] = {}
        self._waiting: dict[int, list[Event]] = {}
        self._n_waiting_bytes = 0
        self._flushed = time.monotonic()
        self._n_events = 0
        self._n_rows = 0
        self.n_dropped = 0
        self._write(blocks.header_bytes(facts))

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close(is_complete=kind is None)

    @property
    def n_events(self) -> int:
        """Events added so far."""
        return self._n_events + sum(map(len, self._waiting.values()))

    def begin_segment(self, first_ubatch: int, name: str) -> None:
        """From ubatch `first_ubatch` on the text is another one."""
        self.flush()
        self._write(blocks.block_bytes(blocks.SEGMENT, sections.encode_segment(Segment(first_ubatch, name))))

    def add(self, event: Event) -> None:
        """Adds an event; ubatches of a stream come in order. Raises SlotpoolError for ids that the group does not have."""
        kind = self._kinds.get((event.layer, event.pass_)) or self._new_kind(event)
        _check(event, kind)
        self._waiting.setdefault(kind.number, []).append(event)
        self._n_waiting_bytes += len(event.ids) * kind.row_bytes + 15
        if self._n_waiting_bytes > _LARGEST_BLOCK:
            self.flush()

    def end_ubatch(self) -> None:
        """All events of an ubatch have been added: a good moment to write."""
        if self._n_waiting_bytes > FLUSH_BYTES or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def add_sections(self, found: Sequence[Section]) -> None:
        """Writes ready sections as one block: whole groups of a trace that is in memory. Their kinds come from `add_group`."""
        self._write_sections(found)

    def add_group(self, kind: GroupKind) -> GroupKind:
        """Names a group before its events; the kind that comes back has its number in this file."""
        if len(self._kinds) == MAX_GROUPS:
            raise SlotpoolError(f"expected at most {MAX_GROUPS} groups in a trace", where=self._where)
        numbered = GroupKind(len(self._kinds), *list(vars(kind).values())[1:])
        self._kinds[kind.layer, kind.pass_] = numbered
        self._write(blocks.block_bytes(blocks.GROUP, sections.encode_group(numbered)))
        return numbered

    def flush(self) -> None:
        """Writes what waits."""
        waiting, self._waiting, self._n_waiting_bytes = self._waiting, {}, 0
        self._flushed = time.monotonic()
        kinds = {kind.number: kind for kind in self._kinds.values()}
        if waiting:
            self._write_sections([_section(kinds[number], events) for number, events in waiting.items()])

    def close(self, *, is_complete: bool = True) -> None:
        """Writes what waits, and the end where the recording `is_complete`."""
        if self._file.closed:
            return
        try:
            self.flush()
            if is_complete:
                totals = Totals(self._n_events, self._n_rows, self.n_dropped)
                self._write(blocks.block_bytes(blocks.END, sections.encode_end(totals)))
        finally:
            self._file.close()

    def _new_kind(self, event: Event) -> GroupKind:
        has = event.weights is not None, event.ranking is not None
        kind = GroupKind(0, event.layer, event.pass_, event.n_expert, event.ids.shape[1], *has)
        if not 0 < kind.n_expert_used <= kind.n_expert <= MAX_EXPERTS:
            raise SlotpoolError(f"expected 1 to {MAX_EXPERTS} experts, found {kind.n_expert_used} used of {kind.n_expert}")
        return self.add_group(kind)

    def _write_sections(self, found: Sequence[Section]) -> None:
        self._write(blocks.block_bytes(blocks.EVENTS, sections.encode_events(found, self.n_dropped)))
        self._n_events += sum(len(section.events) for section in found)
        self._n_rows += sum(len(section.ids) for section in found)

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise SlotpoolError(f"cannot write the trace: {error.strerror}", where=self._where) from error


def write(path: str | os.PathLike[str], trace: Trace, *, force: bool = False) -> None:
    """Writes a whole trace that is in memory. Raises SlotpoolError as TraceWriter does."""
    with TraceWriter(path, trace.facts, force=force) as writer:
        writer.n_dropped = trace.n_dropped
        for segment in trace.segments:
            writer.begin_segment(segment.first_ubatch, segment.name)
        kinds = [writer.add_group(_kind_of(group)) for group in trace.groups]
        for kind, group in zip(kinds, trace.groups, strict=True):
            for section in _pieces(kind, group):
                writer.add_sections([section])


def already_there(path: str | os.PathLike[str]) -> SlotpoolError:
    """The error for a file that would be overwritten."""
    return SlotpoolError("expected no file, found one", where=printable(path), do="--force overwrites it.")


def _created(path: str | os.PathLike[str], force: bool) -> BinaryIO:
    try:
        return open(path, "wb" if force else "xb")
    except FileExistsError as error:
        raise already_there(path) from error
    except OSError as error:
        raise SlotpoolError(f"cannot write the trace: {error.strerror}", where=printable(path)) from error


def _kind_of(group: Group) -> GroupKind:
    has = group.weights is not None, group.ranking is not None
    return GroupKind(0, group.layer, group.pass_, group.n_expert, group.n_expert_used, *has)


def _pieces(kind: GroupKind, group: Group) -> list[Section]:
    """A group in sections of about FLUSH_BYTES, cut between events."""
    n_rows = max(1, FLUSH_BYTES // kind.row_bytes)
    edges = np.unique(np.searchsorted(group.events.first_row, np.arange(0, group.n_rows, n_rows), "left"))
    edges = np.unique(np.append(edges, [0, group.n_events]))
    return [_piece(kind, group, int(low), int(high)) for low, high in pairwise(edges)]


def _piece(kind: GroupKind, group: Group, low: int, high: int) -> Section:
    rows = slice(int(group.events.first_row[low]), int(group.events.first_row[high]))
    weights = None if group.weights is None else group.weights[rows]
    ranking = None if group.ranking is None else group.ranking[rows]
    return Section(kind, _cut(group.events, slice(low, high)), group.ids[rows], weights, ranking)


def _cut(events: Events, cut: slice) -> Events:
    return events_of(events.ubatch[cut], events.n_rows[cut], events.phase[cut], events.n_tokens[cut], events.stream[cut])


def _check(event: Event, kind: GroupKind) -> None:
    """A router whose output is damaged (NaN) gives ids that do not exist: they would be cut to other experts' in the file."""
    ids = event.ids
    if ids.shape[1] != kind.n_expert_used or (event.weights is None) == kind.has_weights or (event.ranking is None) == kind.has_ranking:
        raise SlotpoolError(f"expected the same kind of rows in every event of layer {kind.layer}, found others")
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < kind.n_expert:
        found = f"{int(ids.min())} to {int(ids.max())}"
        raise SlotpoolError(f"expected expert ids from 0 to {kind.n_expert - 1} in layer {kind.layer}, found {found}. A damaged router?")


def _section(kind: GroupKind, waiting: Sequence[Event]) -> Section:
    events = events_of(
        [event.ubatch for event in waiting],
        [len(event.ids) for event in waiting],
        np.array([event.phase for event in waiting], np.uint8),
        [event.n_tokens for event in waiting],
        np.array([event.stream for event in waiting], np.int32),
    )
    weights = [event.weights for event in waiting if event.weights is not None]
    ranking = [event.ranking for event in waiting if event.ranking is not None]
    return Section(
        kind,
        events,
        np.concatenate([event.ids for event in waiting]),
        np.concatenate(weights) if kind.has_weights else None,
        np.concatenate(ranking) if kind.has_ranking else None,
    )
