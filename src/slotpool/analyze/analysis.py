"""Everything that is said about a trace, as frozen data: per layer and for the whole model. Printing and drawing come after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from slotpool.analyze import measures, replay
from slotpool.errors import SlotpoolError
from slotpool.trace import GENERATION, PHASES, PROMPT, Facts, Group, Heat, Trace

WINDOWS = (1, 16, 64, 512, 4096, 65536)
"""Tokens of the windows whose distinct experts are counted."""
CURVE = tuple(step / 20 for step in range(21))
"""Shares of the experts at which coverage is taken."""
POOL_SHARES = (0.25, 0.5)
"""Slots, as shares of a layer's experts, of the pools that are followed through time."""
ALL = "all"
T = TypeVar("T")


@dataclass(frozen=True)
class LayerAnalysis:
    """One group (layer, pass). `reuse` and `distinct` (by WINDOWS) are None where there are too few tokens, or their order is unknown."""

    layer: int
    pass_: str
    n_expert: int
    n_expert_used: int
    rows: int
    counts: NDArray[np.int64]
    entropy_bits: float
    gini: float
    coverage: tuple[float, ...]  # at CURVE
    coverage_25: float
    coverage_50: float
    reuse: float | None
    distinct: tuple[float | None, ...]
    n_never: int


@dataclass(frozen=True)
class Analysis:
    """A whole trace. `phase` is which of its events were taken; the pools are None or empty where only heat is known."""

    facts: Facts
    phase: str
    n_tokens: int
    n_segments: int
    is_complete: bool
    n_dropped: int
    layers: tuple[LayerAnalysis, ...]
    working_set: tuple[float | None, ...]  # means over layers, by WINDOWS
    hit_rates: tuple[replay.HitRate, ...] = ()
    warming: tuple[replay.Warming, ...] = ()
    dips: tuple[replay.Dip, ...] = ()


def analyze(found: Trace | Heat, phase: str | None = None, *, with_pools: bool = True) -> Analysis:
    """Analyses a trace, or what can be said from heat. `phase`: `prompt`, `generation` or `all`; None: generation where there is any.

    Every row counts as one token, in prompts as well. Raises SlotpoolError when no row of that phase was recorded.
    """
    if isinstance(found, Heat):
        return _of_heat(found)
    chosen = phase or _main_phase(found)
    trace = found if chosen == ALL else found.select(PHASES.index(chosen))
    groups = [group for group in trace.groups if group.n_rows]
    if not groups:
        raise SlotpoolError(f"expected rows of phase {chosen} in the trace, found none")
    layers = tuple(_of_group(group) for group in groups)
    switches = [segment.first_ubatch for segment in trace.segments[1:]]
    pools = with_pools and bool(groups)
    return Analysis(
        facts=found.facts,
        phase=chosen,
        n_tokens=max(group.n_rows for group in groups),
        n_segments=len(trace.segments),
        is_complete=found.is_complete,
        n_dropped=found.n_dropped,
        layers=layers,
        working_set=tuple(_mean([layer.distinct[index] for layer in layers]) for index in range(len(WINDOWS))),
        hit_rates=tuple(replay.hit_rates(groups)) if pools else (),
        warming=_known([replay.warming(groups, share) for share in POOL_SHARES]) if pools else (),
        dips=_known([replay.dip(groups, switches, share) for share in POOL_SHARES]) if pools else (),
    )


def _main_phase(trace: Trace) -> str:
    has_generation = any((group.events.phase == GENERATION).any() for group in trace.groups)
    return PHASES[GENERATION if has_generation else PROMPT]


def _of_group(group: Group) -> LayerAnalysis:
    counts = np.bincount(group.ids.ravel(), minlength=group.n_expert).astype(np.int64)
    distinct = measures.distinct_in_windows(group.ids, group.n_expert, WINDOWS)
    reuse = measures.reuse(group.ids, _follows(group))
    return _layer(group.layer, group.pass_, group.n_expert_used, counts, group.n_rows, reuse, distinct)


def _of_heat(heat: Heat) -> Analysis:
    n_used = heat.facts.n_expert_used
    layers = []
    for (layer, pass_), counts in heat.counts.items():
        rows = int(counts.sum()) // max(1, n_used)
        layers.append(_layer(layer, pass_, n_used, counts, rows, None, [None] * len(WINDOWS)))
    n_tokens = max((layer.rows for layer in layers), default=0)
    return Analysis(heat.facts, ALL, n_tokens, 0, True, 0, tuple(layers), (None,) * len(WINDOWS))


def _layer(
    layer: int, pass_: str, n_used: int, counts: NDArray[np.int64], rows: int, reuse: float | None, distinct: Sequence[float | None]
) -> LayerAnalysis:
    return LayerAnalysis(
        layer=layer,
        pass_=pass_,
        n_expert=len(counts),
        n_expert_used=n_used,
        rows=rows,
        counts=counts,
        entropy_bits=measures.entropy_bits(counts),
        gini=measures.gini(counts),
        coverage=tuple(measures.coverage(counts, share) for share in CURVE),
        coverage_25=measures.coverage(counts, 0.25),
        coverage_50=measures.coverage(counts, 0.5),
        reuse=reuse,
        distinct=tuple(distinct),
        n_never=int((counts == 0).sum()),
    )


def _follows(group: Group) -> NDArray[np.bool_]:
    """Whether row i + 1 is the token after row i: in the same event, or in the next ubatch of its stream, and both are whole.

    An ubatch with fewer rows than tokens (the last layer of a prompt) says nothing about neighbours.
    """
    events = group.events
    event_of = np.repeat(np.arange(len(events)), events.n_rows)
    is_whole = events.n_rows == events.n_tokens
    follows_event = (np.diff(events.ubatch) == 1) & (np.diff(events.stream) == 0) & is_whole[1:] & is_whole[:-1]
    is_same = event_of[1:] == event_of[:-1]
    follows: NDArray[np.bool_] = is_same | np.concatenate([follows_event, [False]])[event_of[:-1]]
    return follows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _known(values: Sequence[T | None]) -> tuple[T, ...]:
    return tuple(value for value in values if value is not None)
