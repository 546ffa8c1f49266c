"""When a soak says no: anchors and memory, each a rule with its bound. Pure: samples in, a verdict with its numbers out.

Does not judge the speed (`pace`). The rules are in docs/design/soak.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slotpool.soak.facts import Output

LEAST_ROUNDS = 6
"""Rounds after warm-up below which memory has no verdict."""
LEAST_GROWTH = 4 * 2**20
GROWTH_SHARE = 0.01
"""Memory grows when it gained more than the larger of 4 MiB and 1 % over the rounds that count."""
TOLERANCE = 0.5
"""Logits of an equivalent run may differ by so much, and a token where its lead was not more than twice that."""
_MOST_POINTS = 400
_Z99 = 2.576


@dataclass(frozen=True)
class Trend:
    """How a series of bytes moved over the rounds that count: `growth` from the first to the last, by the robust slope, and its interval.

    `verdict`: `flat`, `grows`, or `too few rounds`.
    """

    verdict: str
    rounds: int
    first: float = 0.0
    last: float = 0.0
    slope: float = 0.0
    growth: float = 0.0
    low: float = 0.0
    high: float = 0.0
    bound: float = 0.0


def n_warm_up(n_rounds: int) -> int:
    """Rounds at the beginning that do not count: slots fill, buffers are made, the allocator finds its size."""
    return max(2, n_rounds // 5)


def memory(by_round: Sequence[float]) -> Trend:
    """The trend of one number of bytes a round: the least that was seen in it, since buffers come and go within."""
    kept = np.asarray(_thinned(by_round[n_warm_up(len(by_round)) :]), float)
    n_rounds = len(by_round) - n_warm_up(len(by_round))
    if n_rounds < LEAST_ROUNDS:
        return Trend("too few rounds", max(0, n_rounds))
    slopes = _slopes(kept)
    low, high = _interval(slopes, len(kept))
    slope, length = float(np.median(slopes)), len(kept) - 1
    bound = max(LEAST_GROWTH, GROWTH_SHARE * float(np.median(kept)))
    grows = slope * length > bound and low > 0
    return Trend(
        "grows" if grows else "flat",
        n_rounds,
        float(kept[0]),
        float(kept[-1]),
        slope * length / (n_rounds - 1),
        slope * length,
        low * length,
        high * length,
        bound,
    )


def first_difference(expected: Sequence[Output], found: Sequence[Output], *, is_exact: bool) -> tuple[int, str] | None:
    """The first output that differs and how; None when all are the same: to the bit, or as an equivalent run may differ."""
    for index, (a, b) in enumerate(zip(expected, found, strict=False)):
        if is_exact and a.token != b.token:
            return index, f"token {b.token} instead of {a.token}"
        if is_exact and a.bits != b.bits:
            return index, f"other logits, by {abs(a.logit - b.logit):.3g} at token {a.token}"
        if not is_exact and a.token != b.token:
            # from here on the texts differ, whoever is right
            return (
                None
                if min(a.lead, b.lead) <= 2 * TOLERANCE
                else (index, f"token {b.token} instead of {a.token}, which led by {a.lead:.3g}")
            )
        if not is_exact and not abs(a.logit - b.logit) <= TOLERANCE:
            return index, f"a logit that differs by {abs(a.logit - b.logit):.3g}, more than {TOLERANCE:g}"
    return None if len(expected) == len(found) else (min(len(expected), len(found)), f"{len(found)} outputs instead of {len(expected)}")


def _thinned(values: Sequence[float]) -> list[float]:
    """At most _MOST_POINTS values: the least of every stretch."""
    size = -(-len(values) // _MOST_POINTS) or 1
    return [min(values[at : at + size]) for at in range(0, len(values), size)]


def _slopes(values: np.ndarray) -> np.ndarray:
    """Slopes of all pairs, sorted (Theil and Sen)."""
    first, second = np.triu_indices(len(values), 1)
    return np.sort((values[second] - values[first]) / (second - first))


def _interval(slopes: np.ndarray, n: int) -> tuple[float, float]:
    """Sen's 99 % interval of the median slope: ranks around the middle, by the variance of Kendall's statistic."""
    width = _Z99 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, int((len(slopes) - width) / 2))
    return float(slopes[low]), float(slopes[len(slopes) - 1 - low])
