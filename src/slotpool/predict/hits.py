"""Hit rates against slots: from recorded routing by the core's own pool and policy, or from an assumption that says that it is one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from slotpool import native

Curve: TypeAlias = Callable[[int], float]
"""Slots of a layer -> share of its lookups that are hits, 0 to 1."""

_RECORDED_SKEW = ((0.0, 0.0), (0.25, 0.694), (0.375, 0.836), (0.5, 0.916), (1.0, 1.0))
"""Share of experts with a slot -> hit rate, decayed frequency on the gpt-oss-20b trace (docs/design/pool.md)."""
ASSUMED = "assumed: routing as skewed as that of gpt-oss-20b, not measured on this model (--trace FILE measures)"


def assumed(n_expert: int) -> Curve:
    """The recorded skew of another model, by the share of experts that have slots."""
    shares, rates = zip(*_RECORDED_SKEW, strict=True)
    return lambda slots: float(np.interp(min(slots, n_expert) / n_expert, shares, rates))


def flat(n_expert: int) -> Curve:
    """Routing without any skew: every expert is as likely as any other."""
    return lambda slots: min(slots, n_expert) / n_expert


def recorded(ids: NDArray[np.int32], n_expert: int, policy: str, decay: float) -> Curve:
    """What a pool of so many slots finds on the events `ids`, [n_events, k], one token each, from empty slots. ValueError on an id out of range."""
    events = np.ascontiguousarray(ids, np.int32)
    n_events, n_used = events.shape

    @cache
    def rate(slots: int) -> float:
        if slots < n_used or not n_events:
            return 0.0
        pool = native.Pool(n_expert, min(slots, n_expert), policy, decay)
        n_lookups = sum(len(set(row)) for row in events.tolist())
        return pool.replay(events.ctypes.data, n_events, n_used) / n_lookups

    return rate
