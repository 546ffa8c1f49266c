"""What samples allow to be said: of paired ratios, and of two sets of samples that were taken apart.

Both intervals are free of any assumption about how samples are distributed: order statistics of the median (sign test) and of
the shift between two sets (Mann and Whitney; Hodges and Lehmann), at 95 %. Few samples say little, and then nothing else is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

from slotpool.report.facts import Spread

BETTER, WORSE, SAME, ONE = "better", "worse", "no difference shown", "one round"
DOUBT = 0.05
FEWEST = 6
"""Pairs below which the median's interval of 95 % is wider than all samples."""
_MOST = 60
"""Samples of a set beyond which the normal approximation is taken."""


def paired(ratios: Sequence[float]) -> str:
    """The verdict of paired ratios, above 1 is better; with few of them, in how many rounds."""
    n, n_above = len(ratios), sum(ratio > 1 for ratio in ratios)
    if n < 2:
        return ONE if n else ""
    if n < FEWEST:
        return f"better in {_all(n)}" if n_above == n else f"worse in {_all(n)}" if max(ratios) < 1 else SAME
    low, high = median_interval(ratios)
    return BETTER if low > 1 else WORSE if high < 1 else SAME


def _all(n: int) -> str:
    return "both" if n == 2 else f"all {n}"


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The interval of the median at 95 % by the sign test; lowest and highest below FEWEST samples."""
    ordered, n = sorted(samples), len(samples)
    tail, rank = 0.0, 0
    while rank < n // 2 and tail + math.comb(n, rank) / 2**n <= DOUBT / 2:
        tail += math.comb(n, rank) / 2**n
        rank += 1
    rank = max(0, rank - 1)
    return ordered[rank], ordered[n - 1 - rank]


def shift(before: Sequence[float], after: Sequence[float]) -> Spread | None:
    """`after` over `before`, both above 0: the median of all pairs' ratios and its interval at 95 %. None where samples are too few."""
    if not before or not after or min(*before, *after) <= 0:
        return None
    rank = _critical(len(before), len(after))
    if rank < 0:
        return None
    ratios = sorted(late / early for early in before for late in after)
    return Spread(median(ratios), ratios[rank], ratios[-1 - rank])


@lru_cache(maxsize=256)
def _critical(m: int, n: int) -> int:
    """The most pairs that can be dropped at each end; -1 where even none of them leaves 95 %."""
    if max(m, n) > _MOST:
        return int(m * n / 2 - 1.96 * math.sqrt(m * n * (m + n + 1) / 12) - 1)
    counts, total, below, rank = _counts(m, n), math.comb(m + n, n), 0, -1
    while (below + counts[rank + 1]) / total <= DOUBT / 2:
        below += counts[rank + 1]
        rank += 1
    return rank


def _counts(m: int, n: int) -> list[int]:
    """Orders of m + n samples by the Mann-Whitney statistic: coefficients of the Gaussian binomial."""
    counts = [1] + [0] * (m * n)
    for i in range(1, n + 1):
        for u in range(m * n, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, m * n + 1):
            counts[u] += counts[u - i]
    return counts
