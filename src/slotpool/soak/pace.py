"""Whether a session became slower: its last third against its first, on a machine whose noise lasts. Pure.

Cannot tell a pool that tires from a machine that was given other work half-way; the load average beside the samples may.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_ROUNDS = 24
"""Rounds after warm-up below which there is no verdict: from so few no lasting noise can be told from a change."""
SLOWER = 0.95
"""The speed fell when the interval of its ratio ends below this."""
_MOST_MEMORY = 0.97
_T99 = {1: 63.66, 2: 9.92, 3: 5.84, 4: 4.60, 5: 4.03, 6: 3.71, 7: 3.50, 8: 3.36, 10: 3.17, 15: 2.95, 30: 2.75}
"""Student's t, two-sided 99 %, by degrees of freedom; those between take the line above."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pace:
    """The last third's speed over the first third's, with its 99 % interval; `memory` is how much of the noise lasts from round to round.

    `verdict`: `no difference found`, `slower`, `faster`, or `too few rounds`.
    """

    verdict: str
    rounds: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    memory: float | None = None


def speed(by_round: Sequence[float], n_warm_up: int) -> Pace:
    """The pace of the same work done once a round, tokens per second. A change is said where the third between lies between as well."""
    kept = np.log([one for one in by_round[n_warm_up:] if one > 0])
    if len(kept) < LEAST_ROUNDS:
        return Pace("too few rounds", len(kept))
    third = len(kept) // 3
    first, between, last = _calmed(kept[:third]), float(np.median(kept[third:-third])), _calmed(kept[-third:])
    memory = _memory([first, last])
    middle, reach = float(last.mean() - first.mean()), _reach([first, last], memory)
    ratio, low, high = (math.exp(one) for one in (middle, middle - reach, middle + reach))
    is_steady = min(first.mean(), last.mean()) <= between <= max(first.mean(), last.mean())
    return Pace(_verdict(low, high, is_steady), len(kept), ratio, low, high, memory)


def _verdict(low: float, high: float, is_steady: bool) -> str:
    if high < SLOWER and is_steady:
        return "slower"
    return "faster" if low > 1 / SLOWER and is_steady else "no difference found"


def _calmed(values: Floats) -> Floats:
    """Outliers moved to the tenth and ninetieth percentile: a machine that stood still for a second is not the pool's doing."""
    low, high = np.percentile(values, (10, 90))
    return np.clip(values, low, high)


def _memory(parts: Sequence[Floats]) -> float:
    """The correlation of neighbours within the parts, with what so few values hide of it (Kendall: (1 + 4 r) / n)."""
    around = [part - part.mean() for part in parts]
    square = sum(float(one @ one) for one in around)
    found = sum(float(one[1:] @ one[:-1]) for one in around) / square if square else 0.0
    return min(_MOST_MEMORY, max(0.0, found + (1 + 4 * found) / len(parts[0])))


def _reach(parts: Sequence[Floats], memory: float) -> float:
    """Half the 99 % interval of the difference of two means, of as many values as the noise leaves independent."""
    n = len(parts[0])
    spread = sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / (2 * n - 2)
    inflation = (1 + memory) / (1 - memory)
    freedom = max(1, int(2 * max(1.5, n / inflation) - 2))
    return _T99[max(known for known in _T99 if known <= freedom)] * math.sqrt(spread * inflation * 2 / n)
