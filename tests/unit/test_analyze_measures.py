"""Every number of an analysis, against one that was worked out by hand, and against a slow count that cannot be wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slotpool.analyze import measures


def counts(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_entropy_of_even_traffic_is_the_logarithm() -> None:
    assert measures.entropy_bits(counts(5, 5, 5, 5)) == 2
    assert measures.entropy_bits(counts(7, 0, 0, 0)) == 0
    assert math.copysign(1, measures.entropy_bits(counts(7, 0))) == 1  # not minus zero
    assert measures.entropy_bits(counts(0, 0)) == 0
    # 1/2, 1/4, 1/8, 1/8: 0.5 * 1 + 0.25 * 2 + 2 * 0.125 * 3
    assert measures.entropy_bits(counts(4, 2, 1, 1)) == 1.75


def test_gini_is_zero_when_even_and_one_less_than_one_over_n_when_one_takes_all() -> None:
    assert measures.gini(counts(3, 3, 3)) == 0
    assert measures.gini(counts(0, 0, 0, 8)) == 0.75
    assert measures.gini(counts(0, 0)) == 0
    # 1, 2, 5 ascending: weights -2, 0, 2: (2 * 5 - 2 * 1) / (3 * 8)
    assert measures.gini(counts(5, 1, 2)) == pytest.approx(8 / 24)


def test_coverage_is_the_share_of_the_hottest() -> None:
    hot = counts(1, 6, 3, 0)
    assert measures.coverage(hot, 0.25) == 0.6
    assert measures.coverage(hot, 0.5) == 0.9
    assert measures.coverage(hot, 0.375) == pytest.approx(0.75)  # half way between one and two experts
    assert (measures.coverage(hot, 0), measures.coverage(hot, 1)) == (0, 1)
    assert measures.coverage(counts(0, 0), 0.5) == 0


def test_reuse_is_the_share_that_the_token_before_had() -> None:
    ids = np.array([[0, 1], [1, 2], [2, 1], [3, 0]], np.int32)
    # one of two, two of two, none of two
    assert measures.reuse(ids, np.array([True, True, True])) == 0.5
    assert measures.reuse(ids, np.array([True, False, True])) == 0.25
    assert measures.reuse(ids, np.array([False, False, False])) is None
    assert measures.reuse(ids[:1], np.empty(0, bool)) is None


def test_an_expert_that_a_token_names_twice_counts_once() -> None:
    ids = np.array([[0, 1], [1, 1], [2, 1]], np.int32)
    # {1} of {1}, {1} of {1, 2}
    assert measures.reuse(ids, np.array([True, True])) == pytest.approx(2 / 3)


def test_distinct_experts_in_windows() -> None:
    ids = np.array([[0], [1], [1], [2], [0]], np.int32)
    # pairs: {0,1} {1} {1,2} {2,0}; threes: {0,1} {1,2} {0,1,2}
    assert measures.distinct_in_windows(ids, 4, [1, 2, 3, 5, 6]) == [1, pytest.approx(7 / 4), pytest.approx(7 / 3), 3, None]


@pytest.mark.parametrize("seed", range(20))
def test_windows_are_counted_as_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_expert, n_tokens, k = int(rng.integers(1, 300)), int(rng.integers(1, 60)), int(rng.integers(1, 5))
    ids = rng.integers(0, n_expert, (n_tokens, k)).astype(np.int32)
    windows = [1, 2, 7, n_tokens, n_tokens + 1]
    for window, found in zip(windows, measures.distinct_in_windows(ids, n_expert, windows), strict=True):
        sets = [len(set(ids[start : start + window].ravel())) for start in range(n_tokens - window + 1)]
        assert found == (pytest.approx(np.mean(sets)) if sets else None)
