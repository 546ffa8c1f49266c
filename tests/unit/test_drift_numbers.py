"""The arithmetic of drift, against its formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from slotpool.drift.numbers import Perplexity, Tally, divergences, log_softmax, merged, same_rows


def logits(*rows: list[float]) -> NDArray[np.float32]:
    return np.array(rows, np.float32)


def add(tally: Tally, reference: NDArray[np.float32], other: NDArray[np.float32]) -> Tally:
    tally.add(reference, other, log_softmax(reference), log_softmax(other))
    return tally


def test_log_softmax_is_its_formula_in_float64() -> None:
    row = [1.5, -2.0, 0.25, 3.0]
    total = sum(math.exp(value) for value in row)
    assert log_softmax(logits(row))[0] == pytest.approx([value - math.log(total) for value in row], abs=1e-15)


def test_log_softmax_of_large_logits_does_not_overflow() -> None:
    assert log_softmax(logits([1e4, 1e4])).tolist() == [[-math.log(2), -math.log(2)]]


def test_divergence_is_the_sum_of_p_log_p_over_q() -> None:
    p, q = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    found = divergences(np.log([p]), np.log([q]))
    assert found[0] == pytest.approx(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)), rel=1e-14)


def test_divergence_is_not_symmetric_and_takes_the_reference_first() -> None:
    p, q = np.log([[0.9, 0.1]]), np.log([[0.5, 0.5]])
    assert divergences(p, q)[0] == pytest.approx(0.9 * math.log(1.8) + 0.1 * math.log(0.2))
    assert divergences(q, p)[0] != pytest.approx(divergences(p, q)[0])


def test_divergence_of_equal_rows_is_zero_and_never_below() -> None:
    rows = log_softmax(np.random.default_rng(1).normal(size=(50, 1000)).astype(np.float32))
    assert divergences(rows, rows).tolist() == [0.0] * 50
    assert divergences(rows, np.nextafter(rows, 0)).min() >= 0


def test_what_the_reference_excludes_counts_nothing_and_what_the_other_excludes_is_infinite() -> None:
    p, q = logits([0.0, -math.inf]), logits([0.0, 0.0])
    assert divergences(log_softmax(p), log_softmax(q))[0] == pytest.approx(math.log(2))
    assert divergences(log_softmax(q), log_softmax(p))[0] == math.inf


def test_rows_are_compared_bit_by_bit() -> None:
    assert same_rows(logits([0.0, math.nan], [1.0, 0.0]), logits([0.0, math.nan], [1.0, -0.0])).tolist() == [True, False]


def test_a_last_bit_is_seen_and_named_by_its_token() -> None:
    reference = np.random.default_rng(2).normal(size=(20, 64)).astype(np.float32)
    other = reference.copy()
    other[13, 7] = np.nextafter(other[13, 7], np.float32(9))
    other[17, 0] += 1
    tally = add(add(Tally(), reference[:8], other[:8]), reference[8:], other[8:])
    assert (tally.n, tally.first, tally.n_different, tally.is_exact) == (20, 13, 2, False)
    assert tally.largest == pytest.approx(1.0, abs=1e-6)


def test_equal_rows_are_exact() -> None:
    rows = np.random.default_rng(3).normal(size=(9, 64)).astype(np.float32)
    tally = add(Tally(), rows, rows.copy())
    assert tally.is_exact
    assert tally.first is None
    assert vars(tally.kld()) == {"mean": 0.0, "median": 0.0, "p99": 0.0, "max": 0.0}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_never_exact_even_where_both_have_them(bad: float) -> None:
    rows = logits([0.0, 1.0], [bad, 1.0])
    tally = add(Tally(), rows, rows.copy())
    assert (tally.n_different, tally.n_not_finite, tally.is_exact) == (0, 1, False)
    assert len(tally.klds) == 1


def test_an_excluded_token_is_a_number_where_both_exclude_it() -> None:
    rows = logits([0.0, -math.inf])
    assert add(Tally(), rows, rows.copy()).is_exact


def test_flips_count_tokens_whose_best_successor_changed() -> None:
    assert add(Tally(), logits([1, 2], [2, 1], [0, 1]), logits([2, 1], [2, 1], [0, 2])).top1_flips == 1


def test_quantiles_are_those_of_all_tokens() -> None:
    tally = Tally()
    tally.klds.extend(float(value) for value in range(101))
    assert vars(tally.kld()) == {"mean": 50.0, "median": 50.0, "p99": 99.0, "max": 100.0}


def test_merged_tallies_count_on() -> None:
    same, other = logits([0.0, 1.0], [0.0, 1.0]), logits([0.0, 1.0], [1.0, 0.0])
    whole = merged([add(Tally(), same, same), add(Tally(), same, other), add(Tally(), same, other)])
    assert (whole.n, whole.first, whole.n_different, whole.top1_flips, len(whole.klds)) == (6, 3, 2, 2, 6)


def test_perplexity_and_its_error_are_those_of_llama_perplexity() -> None:
    nll = np.random.default_rng(4).gamma(2.0, size=100)
    sums = Perplexity()
    for part in (nll[:30], nll[30:30], nll[30:]):
        sums.add(part)
    found = sums.result()
    mean = float(np.mean(nll))
    assert found.ppl == pytest.approx(math.exp(mean))
    assert found.error == pytest.approx(math.exp(mean) * math.sqrt((float(np.mean(nll**2)) - mean**2) / 99))


def test_perplexity_of_too_little_or_too_much_is_none() -> None:
    one, none, infinite, huge = (Perplexity() for _ in range(4))
    one.add(np.array([1.0]))
    infinite.add(np.array([math.inf, 1.0]))
    huge.add(np.array([1e4, 1e4]))
    assert one.result().error is None
    assert [sums.result().ppl for sums in (none, infinite, huge)] == [None] * 3
