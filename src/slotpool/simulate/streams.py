"""A trace as the pools see it: a stream of events for every layer, or one stream over the experts of all layers.

Knows arrays and which events are too large for the slots; replays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotpool.native import EventArrays
from slotpool.native.replay import IS_PROMPT, PASSES
from slotpool.trace import PHASES, PROMPT, Group, Trace


@dataclass(frozen=True)
class Stream:
    """Events of one pool in order. `experts` are those of its layers, one entry a layer.

    ids int32 (those of event i are ids[first[i]] to ids[first[i + 1]]); by event: ubatch, phase, and needs, the slots that an event of
    its shape can ask for: min(k x tokens, experts).
    """

    experts: tuple[int, ...]
    place: tuple[int, str] | None  # layer and pass; None of all layers together
    n_used: int
    ids: NDArray[np.int32]
    first: NDArray[np.int64]
    ubatch: NDArray[np.int64]
    phase: NDArray[np.uint8]
    needs: NDArray[np.int64]

    @property
    def n_expert(self) -> int:
        return sum(self.experts)

    def select(self, is_kept: NDArray[np.bool_]) -> Stream:
        """The events for which `is_kept` is true."""
        if is_kept.all():
            return self
        lengths = np.diff(self.first)
        return Stream(
            self.experts,
            self.place,
            self.n_used,
            self.ids[np.repeat(is_kept, lengths)],
            _cuts(lengths[is_kept]),
            self.ubatch[is_kept],
            self.phase[is_kept],
            self.needs[is_kept],
        )

    def arrays(self, n_slots: int, store: str) -> EventArrays:
        """What a pool sees whose events may ask for `n_slots`: what does not fit passes over a disk, and in memory is not seen."""
        fits = self.needs <= n_slots
        seen = self if store == "disk" else self.select(fits)
        marks = np.where(seen.phase == PROMPT, IS_PROMPT, 0) | np.where(seen.needs > n_slots, PASSES, 0)
        return EventArrays(np.ascontiguousarray(seen.ids), seen.first, marks.astype(np.uint8))

    def hottest(self, n_slots: int, phase: str) -> list[int]:
        """The experts that most rows of the stream ask for, at most `n_slots`, of equals the lower."""
        counted = self.select(self.phase == PHASES.index(phase)) if phase else self
        counts = np.bincount(counted.ids, minlength=self.n_expert)
        found: list[int] = np.argsort(-counts, kind="stable")[:n_slots].tolist()
        return found


def streams_of(trace: Trace, is_global: bool) -> list[Stream]:
    """A stream for every group that has events; with `is_global` one for all, in the order of computation."""
    groups = [group for group in trace.groups if group.n_events]
    if is_global and groups:
        return [_merged(groups)]
    return [_stream(group) for group in groups]


def _stream(group: Group) -> Stream:
    events = group.events
    needs = np.minimum(events.n_tokens.astype(np.int64) * group.n_expert_used, group.n_expert)
    first = events.first_row * group.n_expert_used
    return Stream(
        (group.n_expert,), (group.layer, group.pass_), group.n_expert_used, group.ids.reshape(-1), first, events.ubatch, events.phase, needs
    )


def _merged(groups: list[Group]) -> Stream:
    """Expert e of the n-th layer is e plus the experts of the layers before. An event stays one layer of one ubatch."""
    parts = [_stream(group) for group in groups]
    experts = tuple(group.n_expert for group in groups)
    offsets = _cuts(np.array(experts))[:-1]
    ids = np.concatenate([part.ids + np.int32(offset) for part, offset in zip(parts, offsets, strict=True)])
    lengths = np.concatenate([np.diff(part.first) for part in parts])
    ubatch, phase, needs = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ubatch", "phase", "needs"))
    order = np.argsort(ubatch, kind="stable")  # the layers of an ubatch stay in order
    begins = _cuts(lengths)[:-1][order]
    first = _cuts(lengths[order])
    rows = np.arange(first[-1]) + np.repeat(begins - first[:-1], lengths[order])
    return Stream(experts, None, groups[0].n_expert_used, ids[rows], first, ubatch[order], phase[order], needs[order])


def _cuts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
