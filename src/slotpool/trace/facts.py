"""What a trace holds, frozen: whose routing it is, and per group (layer, pass) the experts of every event.

An event is one group in one ubatch: the rows of the ubatch, k expert ids each. Reads and writes no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int32]
"""Expert ids, [n_rows, k], C order."""
Weights: TypeAlias = NDArray[np.float32]

PHASES = ("prompt", "generation")
"""Names of the phases; an event has the index of its own."""
PROMPT, GENERATION = range(2)
PASSES = ("exps", "chexps")
"""The expert tensors that share a routing: a layer has one pass, grovemoe a second through its chunk experts."""


@dataclass(frozen=True)
class Facts:
    """Whose routing this is and who recorded it.

    `n_expert` and `n_expert_used` are the largest of all layers, 0 where nobody knows (imported files). `fingerprint` is empty where
    no model file was at hand; equal fingerprints mean the same metadata and the same tensors (names, types, shapes).
    """

    architecture: str = ""
    n_layer: int = 0
    n_expert: int = 0
    n_expert_used: int = 0
    fingerprint: str = ""
    engine: str = ""
    source: str = ""


@dataclass(frozen=True)
class Events:
    """One entry per event of a group, in the order they were computed.

    `ubatch` numbers the ubatches of the whole trace from 0, the same number in every group; `stream` the contexts that were recorded.
    `n_tokens` is the size of the ubatch; the event may have fewer rows (the last layer of a prompt has output rows only).
    Rows of event i are first_row[i] to first_row[i + 1].
    """

    ubatch: NDArray[np.int64]
    stream: NDArray[np.int32]
    phase: NDArray[np.uint8]
    n_tokens: NDArray[np.int32]
    first_row: NDArray[np.int64]  # [n_events + 1]

    def __len__(self) -> int:
        return len(self.ubatch)

    @property
    def n_rows(self) -> NDArray[np.int64]:
        """Rows of each event, [n_events]."""
        rows: NDArray[np.int64] = np.diff(self.first_row)
        return rows


@dataclass(frozen=True)
class Group:
    """The routing of one (layer, pass). Arrays are contiguous, one row per token and event.

    `weights` are the router's, as the engine multiplies the experts' outputs by them, [n_rows, k], kept as 16-bit floats in the file.
    `ranking` has all experts of every row, the router's first choice first, [n_rows, n_expert]. Both are None where not recorded.
    """

    layer: int
    pass_: str
    n_expert: int
    n_expert_used: int
    ids: Ids
    events: Events
    weights: Weights | None = None
    ranking: NDArray[np.int32] | None = None

    @property
    def n_events(self) -> int:
        return len(self.events)

    @property
    def n_rows(self) -> int:
        return len(self.ids)

    def event_ids(self, index: int) -> Ids:
        """The ids of event `index`, [rows of the event, k]."""
        return self.ids[self.events.first_row[index] : self.events.first_row[index + 1]]

    def select(self, is_kept: NDArray[np.bool_]) -> Group:
        """The group with the events for which `is_kept`, [n_events], is true."""
        n_rows = self.events.n_rows
        rows = np.repeat(is_kept, n_rows)
        all_ = self.events
        events = events_of(all_.ubatch[is_kept], n_rows[is_kept], all_.phase[is_kept], all_.n_tokens[is_kept], all_.stream[is_kept])
        return replace(
            self,
            ids=np.ascontiguousarray(self.ids[rows]),
            events=events,
            weights=None if self.weights is None else self.weights[rows],
            ranking=None if self.ranking is None else self.ranking[rows],
        )


@dataclass(frozen=True)
class Segment:
    """A stretch of a trace with one topic (an example, a file): from ubatch `first_ubatch` to the next segment."""

    first_ubatch: int
    name: str


@dataclass(frozen=True)
class Trace:
    """A whole trace. Groups are in the order of layer and pass.

    `is_complete` is false when the recording was cut off: everything up to then is here. `n_dropped` events were not recorded because
    the recorder could not keep up.
    """

    facts: Facts
    groups: tuple[Group, ...]
    segments: tuple[Segment, ...] = ()
    is_complete: bool = True
    n_dropped: int = 0

    @cached_property
    def _places(self) -> dict[tuple[int, str], Group]:
        return {(group.layer, group.pass_): group for group in self.groups}

    def group(self, layer: int, pass_: str = "exps") -> Group:
        """The group of a layer and pass. KeyError when the trace has none."""
        return self._places[layer, pass_]

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that were recorded, in order."""
        return tuple(dict.fromkeys(group.layer for group in self.groups))

    @property
    def n_ubatches(self) -> int:
        """One more than the largest ubatch number."""
        return 1 + max((int(group.events.ubatch[-1]) for group in self.groups if group.n_events), default=-1)

    def select(self, phase: int) -> Trace:
        """The events of one phase (PROMPT or GENERATION); ubatches keep their numbers. Groups may be empty afterwards."""
        return replace(self, groups=tuple(group.select(group.events.phase == phase) for group in self.groups))


def events_of(
    ubatch: Sequence[int] | NDArray[np.int64],
    n_rows: Sequence[int] | NDArray[np.int64],
    phase: int | NDArray[np.uint8] = GENERATION,
    n_tokens: Sequence[int] | NDArray[np.int32] | None = None,
    stream: NDArray[np.int32] | None = None,
) -> Events:
    """Events from their columns; one phase for all or one each, tokens as many as rows unless given."""
    n_events = len(ubatch)
    rows = np.asarray(n_rows, np.int64)
    return Events(
        ubatch=np.asarray(ubatch, np.int64),
        stream=np.zeros(n_events, np.int32) if stream is None else stream,
        phase=np.broadcast_to(np.asarray(phase, np.uint8), (n_events,)),
        n_tokens=(rows if n_tokens is None else np.asarray(n_tokens)).astype(np.int32),
        first_row=np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
    )


def single_events(ids: Ids, phase: int = GENERATION) -> Events:
    """Events of one row each, for streams that were decoded token by token."""
    return events_of(np.arange(len(ids), dtype=np.int64), np.ones(len(ids), np.int64), phase)
