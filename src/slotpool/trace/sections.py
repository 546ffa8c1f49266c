"""What stands in the blocks of a trace file: groups, events, segments and the end; arrays to bytes and back, with every bound checked.

Does not know files or frames (`blocks`), nor whole traces (`reader`, `writer`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotpool.trace.blocks import DamageError
from slotpool.trace.facts import PASSES, PHASES, Events, Ids, Segment, Weights, events_of

MAX_GROUPS = 1 << 12
MAX_EXPERTS = 1 << 16
MAX_LAYER = 1 << 20
MAX_ROWS = 1 << 28
"""Of a section; what a row really takes is checked against the bytes that are there."""
MAX_UBATCH = 1 << 48
MAX_NAME = 1 << 12

_GROUP = struct.Struct("<IIIIBB")  # group, layer, experts, experts used, index of the pass, contents
_EVENTS = struct.Struct("<Q")  # events dropped so far
_SECTION = struct.Struct("<IIQQ")  # group, events, rows, first ubatch
_SEGMENT = struct.Struct("<Q")
_END = struct.Struct("<QQQ")  # events, rows, events dropped
_HAS_WEIGHTS, _HAS_RANKING = 1, 2
_COLUMNS = (("ubatch", "<i4"), ("stream", "<u2"), ("phase", "u1"), ("n_tokens", "<u4"), ("n_rows", "<u4"))


@dataclass(frozen=True)
class GroupKind:
    """What a group is, before any event of it: its number in the file, its place, and what is recorded of its rows."""

    number: int
    layer: int
    pass_: str
    n_expert: int
    n_expert_used: int
    has_weights: bool = False
    has_ranking: bool = False

    @property
    def id_type(self) -> np.dtype[Any]:
        """How an expert's id lies in the file."""
        return np.dtype("u1" if self.n_expert <= 256 else "<u2")

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the file."""
        n_ids = self.n_expert_used + self.n_expert * self.has_ranking
        return n_ids * self.id_type.itemsize + 2 * self.n_expert_used * self.has_weights


class Section(NamedTuple):
    """Events of one group, one after the other."""

    kind: GroupKind
    events: Events
    ids: Ids
    weights: Weights | None = None
    ranking: NDArray[np.int32] | None = None


class Totals(NamedTuple):
    """What a complete file must hold."""

    n_events: int
    n_rows: int
    n_dropped: int


def encode_group(kind: GroupKind) -> bytes:
    contents = _HAS_WEIGHTS * kind.has_weights | _HAS_RANKING * kind.has_ranking
    return _GROUP.pack(kind.number, kind.layer, kind.n_expert, kind.n_expert_used, PASSES.index(kind.pass_), contents)


def decode_group(payload: bytes) -> GroupKind:
    """Raises DamageError for numbers that no model has."""
    if len(payload) != _GROUP.size:
        raise DamageError(f"a group has {len(payload)} bytes, expected {_GROUP.size}")
    number, layer, n_expert, n_used, pass_, contents = _GROUP.unpack(payload)
    if number >= MAX_GROUPS or layer >= MAX_LAYER or not 0 < n_used <= n_expert <= MAX_EXPERTS or pass_ >= len(PASSES) or contents > 3:
        raise DamageError("a group has impossible numbers")
    return GroupKind(number, layer, PASSES[pass_], n_expert, n_used, bool(contents & _HAS_WEIGHTS), bool(contents & _HAS_RANKING))


def encode_segment(segment: Segment) -> bytes:
    return _SEGMENT.pack(segment.first_ubatch) + segment.name.encode("utf-8", "surrogateescape")[:MAX_NAME]


def decode_segment(payload: bytes) -> Segment:
    """Raises DamageError where it is too short or too long."""
    if not _SEGMENT.size <= len(payload) <= _SEGMENT.size + MAX_NAME:
        raise DamageError(f"a segment has {len(payload)} bytes")
    (first,) = _SEGMENT.unpack(payload[: _SEGMENT.size])
    if first > MAX_UBATCH:
        raise DamageError("a segment begins at an impossible ubatch")
    return Segment(first, payload[_SEGMENT.size :].decode("utf-8", "replace"))


def encode_end(totals: Totals) -> bytes:
    return _END.pack(*totals)


def decode_end(payload: bytes) -> Totals:
    if len(payload) != _END.size:
        raise DamageError(f"the end has {len(payload)} bytes, expected {_END.size}")
    return Totals(*_END.unpack(payload))


def encode_events(sections: Iterable[Section], n_dropped: int) -> bytes:
    """The payload of one block of events; sections without events are left out."""
    return b"".join([_EVENTS.pack(n_dropped), *(_section_bytes(section) for section in sections if len(section.events))])


def _section_bytes(section: Section) -> bytes:
    kind, events = section.kind, section.events
    first = int(events.ubatch[0])
    # steps, not numbers: a column of ones packs to nothing
    columns: dict[str, NDArray[Any]] = {"ubatch": np.diff(events.ubatch, prepend=first), "stream": events.stream, "phase": events.phase}
    columns |= {"n_tokens": events.n_tokens, "n_rows": events.n_rows}
    parts = [_SECTION.pack(kind.number, len(events), len(section.ids), first)]
    parts += [columns[name].astype(form).tobytes() for name, form in _COLUMNS]
    parts.append(section.ids.astype(kind.id_type).tobytes())
    if kind.has_weights and section.weights is not None:
        parts.append(section.weights.astype("<f2").tobytes())
    if kind.has_ranking and section.ranking is not None:
        parts.append(section.ranking.astype(kind.id_type).tobytes())
    return b"".join(parts)


def decode_events(payload: bytes, kinds: Mapping[int, GroupKind]) -> tuple[list[Section], int]:
    """The sections of a block, and the events dropped so far. Raises DamageError for what does not fit.

    Ids and weights keep the type they have in the file: a trace may have tens of millions, and they are widened once, at the end.
    """
    reading = _Reading(payload)
    (n_dropped,) = _EVENTS.unpack(reading.take(_EVENTS.size))
    sections = []
    while not reading.is_done:
        sections.append(_decode_section(reading, kinds))
    return sections, n_dropped


class _Reading:
    """A place in the bytes of a block."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._payload)

    def take(self, n_bytes: int) -> bytes:
        self._need(n_bytes)
        self._at += n_bytes
        return self._payload[self._at - n_bytes : self._at]

    def array(self, form: str | np.dtype[Any], count: int) -> NDArray[Any]:
        dtype = np.dtype(form)
        self._need(dtype.itemsize * count)
        found: NDArray[Any] = np.frombuffer(self._payload, dtype, count, self._at)
        self._at += dtype.itemsize * count
        return found

    def _need(self, n_bytes: int) -> None:
        if n_bytes > len(self._payload) - self._at:
            raise DamageError("a block of events ends too early")


def _decode_section(reading: _Reading, kinds: Mapping[int, GroupKind]) -> Section:
    number, n_events, n_rows, first = _SECTION.unpack(reading.take(_SECTION.size))
    kind = kinds.get(number)
    if kind is None:
        raise DamageError(f"events of a group {number} that was not named before")
    if n_rows > MAX_ROWS or first > MAX_UBATCH:
        raise DamageError("a block of events has impossible numbers")
    columns = {name: reading.array(form, n_events) for name, form in _COLUMNS}
    _check_columns(columns, n_rows)
    ids = _ids(reading, kind, n_rows, kind.n_expert_used)
    weights = reading.array("<f2", n_rows * kind.n_expert_used).reshape(n_rows, -1) if kind.has_weights else None
    ranking = _ids(reading, kind, n_rows, kind.n_expert) if kind.has_ranking else None
    events = events_of(
        np.cumsum(columns["ubatch"], dtype=np.int64) + first,
        columns["n_rows"],
        columns["phase"],
        columns["n_tokens"],
        columns["stream"].astype(np.int32),
    )
    return Section(kind, events, ids, weights, ranking)


def _check_columns(columns: Mapping[str, NDArray[Any]], n_rows: int) -> None:
    total = int(columns["n_rows"].sum(dtype=np.uint64))
    if total != n_rows:
        raise DamageError(f"the events of a block have {total} rows, expected {n_rows}")
    if (columns["phase"] >= len(PHASES)).any():
        raise DamageError("an event is of no known phase")
    if (columns["n_rows"] > columns["n_tokens"]).any() or (columns["n_tokens"] >= 2**31).any():
        raise DamageError("an event has an impossible number of tokens")


def _ids(reading: _Reading, kind: GroupKind, n_rows: int, width: int) -> NDArray[Any]:
    ids = reading.array(kind.id_type, n_rows * width)
    if ids.size and int(ids.max()) >= kind.n_expert:
        raise DamageError(f"expected expert ids below {kind.n_expert}, found {int(ids.max())}")
    return ids.reshape(n_rows, width)
