"""The verdict of bench: how often it says a difference where there is none, and how often it finds one; seeds are fixed, bounds exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from slotpool.bench import verdict
from slotpool.bench.verdict import DEFAULT_ROUNDS, FASTER, SAME, SLOWER, compare

Noise = Callable[[np.random.Generator, int, float], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def normal(rng: np.random.Generator, n: int, noise: float):  # type: ignore[no-untyped-def]
    return np.maximum(1 + noise * rng.standard_normal(n), 0.01)


def uniform(rng: np.random.Generator, n: int, noise: float):  # type: ignore[no-untyped-def]
    return 1 + noise * math.sqrt(3) * rng.uniform(-1, 1, n)


def slowed(rng: np.random.Generator, n: int, noise: float):  # type: ignore[no-untyped-def]
    """Now and then somebody else takes half of the machine: what a shared one does."""
    return normal(rng, n, noise / 2) * np.where(rng.random(n) < 0.15, 0.5, 1.0)


def count(words: set[str], noise: Noise, share: float, ratio: float, n_rounds: int, seed: int) -> int:
    """Of 1,000 trials, those whose verdict is one of `words`; the machine drifts by 30 % within each."""
    rng = np.random.default_rng(seed)
    drift = np.linspace(1.0, 0.7, n_rounds)
    found = 0
    for _ in range(1000):
        plain, pool = (drift * noise(rng, n_rounds, share) for _ in range(2))
        found += compare(list(ratio * pool), list(plain)).verdict in words
    return found


@pytest.mark.parametrize("noise", [normal, uniform, slowed])
@pytest.mark.parametrize(("n_rounds", "seed"), [(DEFAULT_ROUNDS, 1), (DEFAULT_ROUNDS, 2), (6, 3), (7, 4), (20, 5)])
def test_no_difference_is_called_one_in_at_most_50_of_1000_trials(noise: Noise, n_rounds: int, seed: int) -> None:
    assert count({FASTER, SLOWER}, noise, 0.20, 1.0, n_rounds, seed) <= 50


@pytest.mark.parametrize(("n_rounds", "seed"), [(2, 1), (3, 2), (5, 3)])
def test_few_rounds_of_ordinary_noise_keep_to_it_too(n_rounds: int, seed: int) -> None:
    assert count({FASTER, SLOWER}, normal, 0.20, 1.0, n_rounds, seed) <= 50


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("noise", [normal, uniform])
def test_true_ten_percent_is_found_by_the_default_rounds(noise: Noise, seed: int) -> None:
    assert count({FASTER}, noise, 0.05, 1.10, DEFAULT_ROUNDS, seed) >= 950
    assert count({SLOWER}, noise, 0.05, 1 / 1.10, DEFAULT_ROUNDS, seed) >= 950


def test_more_noise_finds_less() -> None:
    assert count({FASTER}, normal, 0.20, 1.10, DEFAULT_ROUNDS, 1) < 400


@pytest.mark.parametrize("n", range(6, 13))
def test_error_rate_is_that_of_all_patterns_of_signs(n: int) -> None:
    """Of n magnitudes with every pattern of signs, the share whose interval leaves 0 out is the level that is stated."""
    sizes = [1.0 + 0.37**i for i in range(n)]
    patterns = list(product((-1, 1), repeat=n))
    said = 0
    for signs in patterns:
        ratio = compare([math.exp(sign * size) for sign, size in zip(signs, sizes, strict=True)], [1.0] * n)
        said += ratio.verdict != SAME
    assert said / len(patterns) == ratio.level <= verdict.LEVEL


def test_six_rounds_that_agree_are_enough_and_five_of_ranks_would_not_be() -> None:
    assert compare([1.1, 1.2, 1.3, 1.15, 1.25, 1.05], [1.0] * 6).verdict == FASTER
    assert verdict.LEVEL < 2 / 2**5


def test_few_rounds_use_the_quantiles_of_student() -> None:
    for freedom, quantile in verdict._STUDENT.items():
        # the density of t, integrated outward from 0
        x = np.linspace(0, quantile, 200_001)
        scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
        inside = 2 * np.sum((lambda y: (y[1:] + y[:-1]) / 2)(scale * (1 + x**2 / freedom) ** (-(freedom + 1) / 2))) * (x[1] - x[0])
        assert inside == pytest.approx(1 - verdict.LEVEL, abs=1e-4)
    assert compare([2.0, 2.1, 1.9], [1.0, 1.0, 1.0]).method == "t"


def test_one_outlier_does_not_hide_a_difference() -> None:
    rounds = [1.1, 1.11, 1.09, 1.12, 1.1, 1.08, 1.1, 1.13, 1.09, 1.1, 1.11, 1.12, 0.2]
    assert compare(rounds, [1.0] * 13).verdict == FASTER


def test_equal_arms_are_no_difference() -> None:
    ratio = compare([5.0] * 12, [5.0] * 12)
    assert (ratio.verdict, ratio.low, ratio.median, ratio.high) == (SAME, 1.0, 1.0, 1.0)


def test_median_lies_within_the_interval() -> None:
    rng = np.random.default_rng(3)
    for n in range(6, 40):
        ratio = compare(list(rng.lognormal(0, 1, n)), list(rng.lognormal(0, 1, n)))
        assert ratio.low <= ratio.median <= ratio.high


def test_swapped_arms_give_the_inverse() -> None:
    rng = np.random.default_rng(4)
    mine, other = list(rng.lognormal(0.1, 0.1, 12)), list(rng.lognormal(0, 0.1, 12))
    there, back = compare(mine, other), compare(other, mine)
    assert (1 / back.high, 1 / back.low) == pytest.approx((there.low, there.high))
    assert {there.verdict, back.verdict} in ({FASTER, SLOWER}, {SAME})


@pytest.mark.parametrize("speeds", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]])
def test_speeds_that_are_none_are_refused(speeds: list[float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        compare(speeds, [1.0] * len(speeds))
