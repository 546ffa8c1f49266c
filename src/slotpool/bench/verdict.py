"""Says from paired rounds whether one arm is faster than another: the interval of their ratio, and the word for it (docs/design/bench.md).

Pure: knows no engine, no clock and no arm. A round's two speeds were measured one after the other, so their ratio has little of what the
machine did to both.

From six rounds on the interval is that of Wilcoxon's signed ranks over the logarithms of the rounds' ratios (Hodges and Lehmann). Where
there is no difference the two arms of a round can change places without anybody seeing it, so the logarithms scatter evenly around 0
whatever the noise looks like, and the error rate is exact; a test that trusts the normal distribution is not, and loses to outliers.
Fewer than six rounds cannot reach the level that way (of 2^5 patterns of signs the rarest two are 6 %): there it is Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

LEVEL = 1 / 32
"""At most so often "faster" or "slower" is said where there is no difference. The least that six rounds can reach."""
DEFAULT_ROUNDS = 12
"""With a noise of 5 % on every measurement they find a true 10 % in 96 of 100 runs; ten find it in 91, eight in 77."""
FEWEST_FOR_RANKS = 6
FASTER, SLOWER, SAME = "faster", "slower", "no difference"
_STUDENT = {1: 20.3555, 2: 5.5234, 3: 3.8352, 4: 3.2542}
"""Quantiles of Student's t at 1 - LEVEL / 2 by degrees of freedom."""


@dataclass(frozen=True)
class Ratio:
    """Speed of an arm over that of another, a sample a round. `low` to `high` holds the true ratio but for a share of `level` of runs.

    `method` is `signed ranks` or `t`; `verdict` is FASTER, SLOWER or SAME.
    """

    median: float
    low: float
    high: float
    level: float
    method: str
    verdict: str
    samples: tuple[float, ...]


def compare(speeds: Sequence[float], against: Sequence[float]) -> Ratio:
    """What the rounds say of `speeds` over `against`: one of each a round, above 0, more is better. ValueError for fewer than two."""
    if len(speeds) < 2 or not all(math.isfinite(one) and one > 0 for one in (*speeds, *against)):
        raise ValueError(f"expected at least two rounds of finite speeds above 0, found {list(speeds)} and {list(against)}")
    samples = tuple(mine / other for mine, other in zip(speeds, against, strict=True))
    logs = [math.log(one) for one in samples]
    low, high, level, method = _ranks(logs) if len(logs) >= FEWEST_FOR_RANKS else _student(logs)
    word = FASTER if low > 0 else SLOWER if high < 0 else SAME
    return Ratio(median(samples), math.exp(low), math.exp(high), level, method, word, samples)


def _ranks(logs: Sequence[float]) -> tuple[float, float, float, str]:
    """Between the means of all pairs that the test does not reject as the true centre."""
    n = len(logs)
    means = sorted((logs[i] + logs[j]) / 2 for i in range(n) for j in range(i, n))
    first, level = _rejected(n)
    return means[first], means[-1 - first], level, "signed ranks"


def _rejected(n: int) -> tuple[int, float]:
    """How many means on each side lie outside, and how often that is wrong: P(W < that number) on both sides is at most LEVEL."""
    ways = [1]  # by sum: subsets of the ranks 1 to n
    for rank in range(1, n + 1):
        ways = [(ways[s] if s < len(ways) else 0) + (ways[s - rank] if s >= rank else 0) for s in range(len(ways) + rank)]
    below, outside = 0, 0
    while 2 * (below + ways[outside]) <= LEVEL * 2**n:
        below += ways[outside]
        outside += 1
    return outside - 1, 2 * below / 2**n


def _student(logs: Sequence[float]) -> tuple[float, float, float, str]:
    reach = _STUDENT[len(logs) - 1] * stdev(logs) / math.sqrt(len(logs))
    return fmean(logs) - reach, fmean(logs) + reach, LEVEL, "t"
