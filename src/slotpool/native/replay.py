"""Whole traces through the core in one call: through a pool, or through the offline optimum under the pool's rules.

Knows arrays and counts only; what a trace is and which events fit is for `slotpool.simulate` to say.
"""

from __future__ import annotations

import ctypes
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotpool.native.library import Functions, declared
from slotpool.native.pool import Pool

PASSES = 1
"""Mark of an event that is too large for the slots."""
IS_PROMPT = 2
"""Mark of an event that is counted apart."""
ADMISSIONS = ("all", "wanted", "none")
"""Every miss, those that the policy does not refuse (where it gains by refusing), or nobody: slots stay as they are."""


@dataclass(frozen=True)
class Replayed:
    """What replayed events found, in distinct experts. `later`: of those admitted, how many a link brought that no event waited for."""

    events: int = 0
    lookups: int = 0
    hits: int = 0
    admitted: int = 0
    later: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Link:
    """How slots are filled where the CPU can serve misses. While slots are free every miss has one at once: this is of pools that are warm.

    Of an event's n misses `n_copied[n]` are copied before use (beyond the last entry as many as that); of the others what the policy
    wants comes later. `experts_per_event`: experts that the link brings for later between two events of the pool. `experts_per_miss`: how
    many may be on their way for later, for each miss that is not copied; one may always be. `n_events_on_the_way`: events that find an
    expert missing which was copied for later.
    """

    experts_per_event: float
    experts_per_miss: float
    n_events_on_the_way: int
    n_copied: tuple[int, ...]


class EventArrays:
    """Events in memory as the core reads them: the ids of event i are ids[first[i]] to ids[first[i + 1]].

    ids int32, first int64 [n_events + 1], marks uint8 [n_events] (PASSES, IS_PROMPT). ValueError when they do not fit each other.
    """

    def __init__(self, ids: NDArray[np.int32], first: NDArray[np.int64], marks: NDArray[np.uint8]) -> None:
        arrays = ((ids, np.int32), (first, np.int64), (marks, np.uint8))
        if any(array.dtype != kind or array.ndim != 1 or not array.flags.c_contiguous for array, kind in arrays):
            raise ValueError("expected contiguous int32 ids, int64 first and uint8 marks")
        if len(first) != len(marks) + 1 or first[0] != 0 or first[-1] != len(ids) or (np.diff(first) < 0).any():
            raise ValueError(f"expected {len(marks)} events that cut {len(ids)} ids in order")
        self.ids, self.first, self.marks = ids, first, marks

    def __len__(self) -> int:
        return len(self.marks)


class _Events(ctypes.Structure):
    _fields_ = (("ids", ctypes.c_void_p), ("first", ctypes.c_void_p), ("marks", ctypes.c_void_p), ("n_events", ctypes.c_size_t))


class _Link(ctypes.Structure):
    _fields_ = (
        ("experts_per_event", ctypes.c_double),
        ("experts_per_miss", ctypes.c_double),
        ("n_events_on_the_way", ctypes.c_size_t),
        ("n_copied", ctypes.c_void_p),
        ("n_counts", ctypes.c_size_t),
    )


_COUNTS = tuple(field.name for field in fields(Replayed))


class _Replayed(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in _COUNTS)


# name, result, arguments
_FUNCTIONS: Functions = (
    (
        "slotpool_pool_replay",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.POINTER(_Events), ctypes.c_int, ctypes.POINTER(_Replayed), ctypes.c_void_p),
    ),
    (
        "slotpool_pool_replay_over_link",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.POINTER(_Events), ctypes.POINTER(_Link), ctypes.POINTER(_Replayed), ctypes.c_void_p),
    ),
    (
        "slotpool_belady",
        ctypes.c_int,
        (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Events), ctypes.c_int, ctypes.POINTER(_Replayed), ctypes.c_void_p),
    ),
)
core = declared(_FUNCTIONS)


def replay(pool: Pool, events: EventArrays, admission: str = "all", hits: NDArray[np.int32] | None = None) -> tuple[Replayed, Replayed]:
    """Replays the events through `pool`, slots published at once: what generation found, and what events marked IS_PROMPT found.

    `hits`, int32 [n_events], gets the hits of every event. ValueError on an id out of range: events before it have been replayed.
    """
    out = (_Replayed * 2)()
    number = ADMISSIONS.index(admission)
    code = core().slotpool_pool_replay(pool.handle, _events(events), number, out, _address(hits, len(events)))
    return _answer(code, out, pool.n_expert)


def replay_over(pool: Pool, events: EventArrays, link: Link, hits: NDArray[np.int32] | None = None) -> tuple[Replayed, Replayed]:
    """As `replay`, slots filled over `link`. ValueError as there, and where `link.n_copied` is empty."""
    if not link.n_copied:
        raise ValueError("expected how many of no misses are copied, found nothing")
    out, n_copied = (_Replayed * 2)(), np.array(link.n_copied, np.int32)
    given = _Link(link.experts_per_event, link.experts_per_miss, link.n_events_on_the_way, n_copied.ctypes.data, len(n_copied))
    code = core().slotpool_pool_replay_over_link(pool.handle, _events(events), given, out, _address(hits, len(events)))
    return _answer(code, out, pool.n_expert)


def belady(
    events: EventArrays, n_expert: int, n_slots: int, *, may_refuse: bool = True, hits: NDArray[np.int32] | None = None
) -> tuple[Replayed, Replayed]:
    """The same events through the offline optimum (`slotpool.policies.belady`), from empty slots. Admissions are not counted."""
    out = (_Replayed * 2)()
    code = core().slotpool_belady(n_expert, n_slots, _events(events), int(may_refuse), out, _address(hits, len(events)))
    return _answer(code, out, n_expert)


def _events(events: EventArrays) -> _Events:
    addresses = (array.ctypes.data for array in (events.ids, events.first, events.marks))
    return _Events(*addresses, len(events))


def _address(hits: NDArray[np.int32] | None, n_events: int) -> int | None:
    if hits is None:
        return None
    if hits.dtype != np.int32 or hits.shape != (n_events,) or not hits.flags.c_contiguous:
        raise ValueError(f"expected contiguous int32 hits of {n_events} events")
    return int(hits.ctypes.data)


def _answer(code: int, out: Any, n_expert: int) -> tuple[Replayed, Replayed]:
    if code:
        raise ValueError(f"expected at least one slot and expert ids from 0 to {n_expert - 1}, found others")
    generation, prompt = (Replayed(*(getattr(one, name) for name in _COUNTS)) for one in out)
    return generation, prompt
