"""What samples allow to be said: both intervals against counts by hand, and how often they are wrong."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from slotpool.report import judge


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([], ""),
        ([1.2], "one round"),
        ([1.2, 1.3], "better in both"),
        ([1.1] * 5, "better in all 5"),
        ([0.9] * 4, "worse in all 4"),
        ([0.9, 1.0, 0.9, 0.8], judge.SAME),
        ([1.1] * 6, judge.BETTER),
        ([0.9] * 6, judge.WORSE),
        ([1.1] * 5 + [0.99], judge.SAME),
        ([1.1] * 8 + [0.99], judge.BETTER),
    ],
)
def test_rounds_that_are_pairs(ratios: list[float], said: str) -> None:
    assert judge.paired(ratios) == said


@pytest.mark.parametrize(("n", "rank"), [(5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (40, 13)])
def test_the_median_s_interval_is_that_of_the_sign_test(n: int, rank: int) -> None:
    low, high = judge.median_interval(list(range(n)))
    assert (low, high) == (rank, n - 1 - rank)
    if n >= judge.FEWEST:
        assert sum(math.comb(n, k) for k in range(rank + 1)) / 2**n <= judge.DOUBT / 2
        assert sum(math.comb(n, k) for k in range(rank + 2)) / 2**n > judge.DOUBT / 2


@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 3), (4, 4), (5, 3)])
def test_orders_are_counted_as_by_hand(m: int, n: int) -> None:
    by_hand = [0] * (m * n + 1)
    for places in itertools.combinations(range(m + n), n):
        by_hand[sum(place - index for index, place in enumerate(places))] += 1
    assert judge._counts(m, n) == by_hand


@pytest.mark.parametrize(
    ("m", "n", "is_enough"), [(3, 3, False), (3, 4, False), (4, 4, True), (3, 5, True), (2, 8, True), (1, 38, False), (1, 39, True)]
)
def test_few_samples_say_nothing(m: int, n: int, is_enough: bool) -> None:
    assert (judge.shift([1.0] * m, [2.0] * n) is not None) == is_enough


def test_a_shift_is_the_median_of_all_ratios() -> None:
    found = judge.shift([1.0, 2.0, 4.0, 8.0], [10.0, 20.0, 40.0, 80.0])
    assert found is not None
    assert found.median == 10.0
    assert (found.low, found.high) == (1.25, 80.0)  # 4 and 4: no pair may be dropped


@pytest.mark.parametrize(("before", "after"), [([0.0] * 8, [1.0] * 8), ([1.0] * 8, [-1.0] * 8), ([], [1.0])])
def test_what_has_no_ratio_has_no_shift(before: list[float], after: list[float]) -> None:
    assert judge.shift(before, after) is None


@pytest.mark.parametrize(("m", "n"), [(5, 5), (8, 12), (61, 61)])
def test_a_difference_that_is_none_is_seldom_said_and_a_true_one_found(m: int, n: int) -> None:
    random, trials = np.random.default_rng(5), 400
    wrong = found = 0
    for _ in range(trials):
        before, after = (np.exp(random.normal(0, 0.1, size)).tolist() for size in (m, n))
        alike, other = judge.shift(before, after), judge.shift(before, [1.5 * one for one in after])
        assert alike is not None
        assert other is not None
        wrong += not alike.low <= 1 <= alike.high
        found += other.low > 1
    assert wrong <= 0.05 * trials + 2 * math.sqrt(0.05 * 0.95 * trials)  # two standard deviations of a count of trials
    assert found > 0.95 * trials
