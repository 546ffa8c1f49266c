"""What pools would have done with a trace: hit rates against slots, the way from cold to steady, the dip after a topic switch.

Runs the core's own pool and policies; every row is an event of its own, as when text is generated. Times are tokens, not seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotpool.native import EventArrays, Pool, belady
from slotpool.native.replay import replay
from slotpool.policies import DEFAULT, POLICIES
from slotpool.trace import Group

BELADY = "belady"
SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
"""Slots, as shares of a layer's experts, at which hit rates are taken."""
STEP = 16
"""Tokens between two points of a curve in time."""
SETTLED = 0.95
"""A pool is steady when it reaches this share of the hit rate of the second half."""
DEFAULT_POLICY = DEFAULT
AFTER = (16, 32, 64, 128, 256)
"""Ends of the stretches after a topic switch, tokens."""
BEFORE = 64
"""Tokens before a topic switch to compare with."""


@dataclass(frozen=True)
class HitRate:
    """Hits over lookups of all layers together, each with slots for `share` of its experts. `slots` is their mean over layers."""

    policy: str
    share: float
    slots: float
    hit_rate: float
    n_tokens: int


@dataclass(frozen=True)
class Warming:
    """Hit rate from an empty pool on: one value for every STEP tokens. `steady` is that of the second half, `tokens` until steady."""

    share: float
    hit_rates: tuple[float, ...]
    steady: float
    tokens: int | None


@dataclass(frozen=True)
class Dip:
    """Hit rates around topic switches, means over all of them: of the BEFORE tokens before, and of stretches after, by their ends."""

    share: float
    n_switches: int
    before: float
    after: tuple[tuple[int, float], ...]


def slots_of(group: Group, share: float) -> int:
    """Slots of a layer for a share of its experts; at least what one token uses."""
    return min(group.n_expert, max(group.n_expert_used, round(share * group.n_expert)))


def hit_rates(groups: Sequence[Group], policies: Sequence[str] = POLICIES, shares: Sequence[float] = SHARES) -> list[HitRate]:
    """Hit rates of every policy, every miss admitted, and of the optimum that may refuse."""
    return [_hit_rate(groups, policy, share) for policy in (*policies, BELADY) for share in shares]


def _hit_rate(groups: Sequence[Group], policy: str, share: float) -> HitRate:
    hits = lookups = n_tokens = 0
    for group in groups:
        slots = slots_of(group, share)
        optimum = policy == BELADY and group.n_rows
        hits += belady(_events(group.ids), group.n_expert, slots)[0].hits if optimum else 0
        hits += 0 if policy == BELADY else Replay(group, policy, slots).hits(group.ids)
        lookups += n_lookups(group.ids)
        n_tokens = max(n_tokens, group.n_rows)
    mean_slots = float(np.mean([slots_of(group, share) for group in groups])) if groups else 0.0
    return HitRate(policy, share, mean_slots, hits / lookups if lookups else 0.0, n_tokens)


def _events(ids: NDArray[np.int32]) -> EventArrays:
    """Every row, [n_rows, k], as an event of its own."""
    rows = np.ascontiguousarray(ids, np.int32)
    first = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int64)
    return EventArrays(rows.ravel(), first, np.zeros(len(rows), np.uint8))


class Replay:
    """One layer's pool, going through its rows bit by bit."""

    def __init__(self, group: Group, policy: str, slots: int) -> None:
        self._pool = Pool(group.n_expert, slots, policy)

    def hits(self, ids: NDArray[np.int32]) -> int:
        """Hits of the next rows, [n_rows, k]."""
        return replay(self._pool, _events(ids))[0].hits if len(ids) else 0


def n_lookups(ids: NDArray[np.int32]) -> int:
    """Distinct experts of every row, added up."""
    in_order = np.sort(ids, axis=1)
    return int(ids.size - (in_order[:, 1:] == in_order[:, :-1]).sum())


class _Stretches(NamedTuple):
    """One layer cut into stretches: where, and the hits and lookups between one cut and the next."""

    cuts: NDArray[np.int64]
    hits: NDArray[np.int64]
    lookups: NDArray[np.int64]


def _stretches(groups: Sequence[Group], share: float, cuts_of: Callable[[Group], NDArray[np.int64]]) -> list[_Stretches]:
    """Every group through a pool of its own, which goes on from stretch to stretch."""
    found = []
    for group in groups:
        cuts = cuts_of(group)
        replay = Replay(group, DEFAULT_POLICY, slots_of(group, share))
        parts = [group.ids[low:high] for low, high in pairwise(cuts)]
        hits, lookups = [replay.hits(part) for part in parts], [n_lookups(part) for part in parts]
        found.append(_Stretches(cuts, np.array(hits, np.int64), np.array(lookups, np.int64)))
    return found


def warming(groups: Sequence[Group], share: float, n_tokens: int = 1 << 14) -> Warming | None:
    """From an empty pool on, over at most `n_tokens` tokens of the longest layers. None for less than four steps."""
    n_rows = min(n_tokens, max((group.n_rows for group in groups), default=0)) // STEP * STEP
    long = [group for group in groups if group.n_rows >= n_rows]
    if n_rows < 4 * STEP:
        return None
    cuts = np.arange(0, n_rows + 1, STEP)
    found = _stretches(long, share, lambda group: cuts)
    rates = np.sum([part.hits for part in found], axis=0) / np.sum([part.lookups for part in found], axis=0)
    steady = float(rates[len(rates) // 2 :].mean())
    # a single good step is no steadiness, and a good mean none of a step that is still cold: the step, and four from it on average
    means = np.convolve(rates, np.ones(4) / 4, "valid")
    reached = np.nonzero(np.minimum(means, rates[: len(means)]) >= SETTLED * steady)[0]
    return Warming(share, tuple(rates.tolist()), steady, int(reached[0]) * STEP if len(reached) else None)


def dip(groups: Sequence[Group], first_ubatches: Sequence[int], share: float, limit: int = 1024) -> Dip | None:
    """Around the switches at `first_ubatches`, at most `limit` of them; None when no switch has enough tokens on both sides."""
    long = [group for group in groups if group.n_rows > BEFORE + AFTER[0]]
    starts = {id(group): _starts(group, first_ubatches)[:limit] for group in long}
    edges = np.array([-BEFORE, 0, *AFTER])
    hits, lookups = np.zeros(len(edges)), np.zeros(len(edges))
    n_switches = 0

    def cuts_of(group: Group) -> NDArray[np.int64]:
        marks = (starts[id(group)][:, None] + edges).ravel()
        return np.unique(np.concatenate([[0], marks, [group.n_rows]]))

    for group, (cuts, found_hits, found_lookups) in zip(long, _stretches(long, share, cuts_of), strict=True):
        done = np.concatenate([[0], np.cumsum(found_hits)]), np.concatenate([[0], np.cumsum(found_lookups)])
        marks = np.searchsorted(cuts, starts[id(group)][:, None] + edges)
        n_switches = max(n_switches, len(marks))
        for part in range(len(edges) - 1):
            hits[part] += (done[0][marks[:, part + 1]] - done[0][marks[:, part]]).sum()
            lookups[part] += (done[1][marks[:, part + 1]] - done[1][marks[:, part]]).sum()
    if not n_switches:
        return None
    rates = hits[:-1] / lookups[:-1]
    return Dip(share, n_switches, float(rates[0]), tuple((end, float(rate)) for end, rate in zip(AFTER, rates[1:], strict=True)))


def _starts(group: Group, first_ubatches: Sequence[int]) -> NDArray[np.int64]:
    """Rows where a new topic begins, with room before and after it for every stretch."""
    events = np.searchsorted(group.events.ubatch, np.asarray(first_ubatches, np.int64))
    rows = np.unique(group.events.first_row[events])
    ends = np.concatenate([rows[1:], [group.n_rows]])
    before = np.diff(rows, prepend=0)
    return rows[(before >= BEFORE) & (ends - rows >= AFTER[-1])]
