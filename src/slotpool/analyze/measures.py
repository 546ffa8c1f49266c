"""Numbers about which experts are used, each a formula with its source: pure functions of counts and ids.

Nothing here knows traces, pools or files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
"""Rows that asked for each expert, [n_expert]."""


def entropy_bits(counts: Counts) -> float:
    """Entropy of the traffic over experts, in bits: -sum p log2 p; log2(n_expert) when all are asked for alike.

    Shannon, "A mathematical theory of communication", Bell System Technical Journal 27 (1948). 0 without traffic.
    """
    used = counts[counts > 0]
    if not len(used):
        return 0.0
    shares = used / used.sum()
    return float(-(shares * np.log2(shares)).sum()) + 0.0  # no minus zero


def gini(counts: Counts) -> float:
    """Gini coefficient of the traffic: 0 when all experts are asked for alike, 1 - 1/n_expert when one takes all.

    With counts ascending, sum (2i - n - 1) c_i / (n sum c_i): Gini, "Variabilita e mutabilita" (1912), in the form for a sorted sample.
    0 without traffic.
    """
    n, total = len(counts), int(counts.sum())
    if not total:
        return 0.0
    weights = 2 * np.arange(1, n + 1) - n - 1
    return float((weights * np.sort(counts).astype(np.float64)).sum() / (n * total))


def coverage(counts: Counts, share: float) -> float:
    """Share of the traffic that the hottest `share` of the experts takes; between whole experts the line is straight.

    A point of the Lorenz curve read from its rich end: Lorenz, Publications of the American Statistical Association 9 (1905).
    0 without traffic.
    """
    total = int(counts.sum())
    if not total:
        return 0.0
    reached = np.concatenate([[0], np.cumsum(np.sort(counts)[::-1])]) / total
    return float(np.interp(share * len(counts), np.arange(len(counts) + 1), reached))


def reuse(ids: NDArray[np.int32], follows: NDArray[np.bool_]) -> float | None:
    """Share of a token's distinct experts that the token before asked for as well. None where no token follows another.

    `ids` [n_rows, k]; `follows` [n_rows - 1]: whether row i + 1 is the token after row i.
    """
    now, before = ids[1:][follows], ids[:-1][follows]
    if not len(now):
        return None
    is_again = np.zeros(now.shape, np.bool_)
    is_first = np.ones(now.shape, np.bool_)
    # a column at a time: the whole comparison would take k * k bytes a row
    for column in range(now.shape[1]):
        mine = now[:, column]
        for other in range(before.shape[1]):
            is_again[:, column] |= mine == before[:, other]
        for earlier in range(column):
            is_first[:, column] &= mine != now[:, earlier]
    return float((is_again & is_first).sum() / is_first.sum())


def distinct_in_windows(ids: NDArray[np.int32], n_expert: int, windows: Sequence[int]) -> list[float | None]:
    """Mean number of distinct experts in a window of w tokens, over all windows of that length. None where there are fewer tokens.

    The mean size of Denning's working set ("The working set model for program behavior", CACM 11 (1968)), per token: an expert is absent
    from g - w + 1 of the windows that fall into a gap of g tokens without it, so counting gaps once serves every w.
    """
    n_tokens = len(ids)
    gaps = _gaps(ids, n_expert)
    return [_mean_distinct(gaps, n_expert, n_tokens, window) if window <= n_tokens else None for window in windows]


def _mean_distinct(gaps: Counts, n_expert: int, n_tokens: int, window: int) -> float:
    """`gaps[g]`: stretches of g tokens without one of the experts."""
    lengths = np.arange(window, len(gaps))
    n_absent = int((gaps[window:] * (lengths - window + 1)).sum())
    return n_expert - n_absent / (n_tokens - window + 1)


def _gaps(ids: NDArray[np.int32], n_expert: int) -> Counts:
    """How often each length of a stretch without an expert occurs, over all experts, [n_tokens + 1]."""
    n_tokens, k = ids.shape
    small = ids.astype(np.uint8 if n_expert <= 256 else np.uint16).ravel()
    order = np.argsort(small, kind="stable")  # by expert, then by token; a radix sort for these types
    expert, token = small[order], order // k
    is_new = np.concatenate([[True], expert[1:] != expert[:-1]])
    is_last = np.concatenate([is_new[1:], [True]])
    before = np.where(is_new, -1, np.roll(token, 1))
    gaps = np.maximum(token - before - 1, 0)
    tails = n_tokens - 1 - token[is_last]
    found = np.bincount(np.concatenate([gaps, tails]), minlength=n_tokens + 1).astype(np.int64)
    found[0] = 0
    found[n_tokens] += n_expert - int(is_new.sum())  # never asked for
    return found
