"""Hit rates against slots: from recorded routing by the core's own pool and policy, or from an assumption that says that it is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

import numpy as np

from slotpool.native import Link
from slotpool.simulate import Settings, Slots, replayed
from slotpool.trace import Group, Trace

Curve: TypeAlias = Callable[[int], float]
"""Slots of a layer -> share of its lookups that are hits, 0 to 1."""


@dataclass(frozen=True)
class Found:
    """What a replayed pool found: the share of lookups that are hits, and experts an event that came for later."""

    hit_rate: float
    later: float = 0.0


Replayer: TypeAlias = "Callable[[int, Link | None], Found]"
"""Slots of a layer, and the link that fills them (None: every miss has a slot at once) -> what the pool finds."""

MOST_EVENTS = 1 << 15
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


def recorded(trace: Trace, group: Group, policy: str) -> Replayer:
    """What generation finds in a pool of so many slots on the group's events, the prompts of the trace replayed too, from empty slots. With
    a link slots are filled over it, without one every miss gets a slot at once.

    The seam to the simulator. Of a long trace the last MOST_EVENTS. Nothing where there is no generation that fits.
    """
    is_late = np.arange(group.n_events) >= group.n_events - MOST_EVENTS
    alone = replace(trace, groups=(group.select(is_late) if group.n_events > MOST_EVENTS else group,))

    @cache
    def found(slots: int, link: Link | None = None) -> Found:
        if slots < group.n_expert_used:
            return Found(0.0)
        counts = replayed(alone, policy, Slots(count=slots), Settings(phase="generation", admission="all", link=link))
        return Found(counts.hits / counts.lookups, counts.later / counts.events) if counts.lookups else Found(0.0)

    return found
