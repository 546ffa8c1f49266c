"""What a soak calls a difference, growth and a change of speed, on made-up samples: found when it is there, not when it is not."""

from __future__ import annotations

import numpy as np
import pytest

from slotpool.soak import pace, rules
from slotpool.soak.document import document
from slotpool.soak.facts import PHASES, Counters, Difference, Observed, Output, Sample

MIB = 2**20
SEED = 20261130


def noise(n: int, lasting: float, random: np.random.Generator) -> np.ndarray:
    """Noise of variance 1 of which a part lasts from one value to the next."""
    values, last = np.empty(n), random.normal()
    for i in range(n):
        last = lasting * last + np.sqrt(1 - lasting**2) * random.normal()
        values[i] = last
    return values


# ---- memory ----


def test_a_leak_is_growth() -> None:
    random = np.random.default_rng(SEED)
    leaking = 300 * MIB + np.arange(40) * MIB / 2 + random.normal(size=40) * MIB
    trend = rules.memory(list(leaking))
    assert trend.verdict == "grows"
    assert trend.slope == pytest.approx(MIB / 2, rel=0.2)


def test_memory_that_is_filled_once_and_then_stays_is_flat() -> None:
    """Warm-up, and one step in the middle, as when an allocator takes another arena."""
    filled = [100 * MIB, 200 * MIB, *([300 * MIB] * 18), *([330 * MIB] * 16)]
    assert rules.memory(filled).verdict == "flat"


@pytest.mark.parametrize("n", [10, 40, 400, 3000])
def test_memory_that_only_wanders_is_flat(n: int) -> None:
    random = np.random.default_rng(SEED)
    verdicts = [rules.memory(list(300 * MIB + 3 * MIB * random.normal(size=n))).verdict for _ in range(100)]
    assert verdicts.count("flat") == 100


def test_growth_below_the_bound_is_flat_and_above_it_is_not() -> None:
    for share, verdict in ((0.9, "flat"), (1.1, "grows")):
        values = np.linspace(0, 1, 30)
        counting = values[rules.n_warm_up(30) :]
        grown = 100 * MIB + values / (counting[-1] - counting[0]) * rules.LEAST_GROWTH * share
        assert rules.memory(list(grown)).verdict == verdict


def test_memory_of_few_rounds_has_no_verdict() -> None:
    least = rules.LEAST_ROUNDS + 2
    assert rules.memory([1.0 * MIB * i for i in range(least - 1)]).verdict == "too few rounds"
    assert rules.memory([1.0 * MIB * i for i in range(least)]).verdict == "grows"


# ---- speed ----


@pytest.mark.parametrize("lasting", [0.0, 0.5, 0.9, 0.99])
def test_a_noisy_machine_is_seldom_called_a_change(lasting: float) -> None:
    """20 % noise that lasts: at most one trial in twenty."""
    random = np.random.default_rng(SEED)
    trials = [pace.speed(list(100 * np.exp(0.2 * noise(80, lasting, random))), 2).verdict for _ in range(300)]
    assert trials.count("no difference found") >= 285


@pytest.mark.parametrize(("end", "verdict"), [(0.75, "slower"), (1 / 0.75, "faster")])
def test_a_change_of_a_quarter_is_found(end: float, verdict: str) -> None:
    random = np.random.default_rng(SEED)
    changed = np.linspace(1, end, 120)
    trials = [pace.speed(list(100 * changed * np.exp(0.05 * random.normal(size=120))), 2).verdict for _ in range(100)]
    assert trials.count(verdict) >= 95


def test_a_second_in_which_the_machine_stood_still_is_no_change() -> None:
    speeds = [100.0 + i % 3 for i in range(60)]
    speeds[-1] = speeds[-9] = 0.5
    assert pace.speed(speeds, 2).verdict == "no difference found"


def test_speed_of_few_rounds_has_no_verdict() -> None:
    falling = [100.0 / (1 + i) for i in range(pace.LEAST_ROUNDS + 2)]
    assert pace.speed(falling[:-1], 2).verdict == "too few rounds"
    assert pace.speed(falling, 2).verdict != "too few rounds"


def test_a_speed_that_never_varies_has_an_interval_of_its_own() -> None:
    found = pace.speed([100.0] * 40, 2)
    assert found.verdict == "no difference found"
    assert (found.ratio, found.low, found.high) == pytest.approx((1, 1, 1))


# ---- answers ----

SAID = (Output(5, "aa", 3.0, 0.1), Output(7, "bb", 4.0, 9.0), Output(9, "cc", 1.0, 9.0))


@pytest.mark.parametrize(
    ("index", "changed", "detail"),
    [
        (0, Output(6, "aa", 3.0, 0.1), "token 6 instead of 5"),
        (1, Output(7, "bc", 4.0, 9.0), "other logits"),
        (2, Output(9, "dd", 1.5, 9.0), "other logits, by 0.5"),
    ],
)
def test_an_exact_answer_that_differs_in_a_bit_is_found(index: int, changed: Output, detail: str) -> None:
    found = list(SAID)
    found[index] = changed
    said = rules.first_difference(SAID, found, is_exact=True)
    assert said is not None
    assert said[0] == index
    assert detail in said[1]
    assert rules.first_difference(SAID, SAID, is_exact=True) is None


def test_a_shorter_answer_differs() -> None:
    for is_exact in (True, False):
        assert rules.first_difference(SAID, SAID[:2], is_exact=is_exact) == (2, "2 outputs instead of 3")


def test_an_equivalent_answer_may_differ_in_its_last_bits_and_where_two_tokens_were_close() -> None:
    bits = tuple(Output(one.token, "other", one.logit + 0.01, one.lead) for one in SAID)
    close = (Output(6, "x", 3.0, 0.1), Output(1, "y", 0.0, 9.0), SAID[2])
    for found in (bits, close):
        assert rules.first_difference(SAID, found, is_exact=False) is None


@pytest.mark.parametrize(
    "changed", [Output(8, "bb", 4.0, 9.0), Output(7, "bb", 4.0 + 2 * rules.TOLERANCE, 9.0), Output(7, "", float("nan"), 9.0)]
)
def test_an_equivalent_answer_that_is_another_is_found(changed: Output) -> None:
    said = rules.first_difference(SAID, (SAID[0], changed, SAID[2]), is_exact=False)
    assert said is not None
    assert said[0] == 1


# ---- the document ----


def sample(number: int, phase: str, private: int = 100 * MIB, speed: float = 50.0) -> Sample:
    counters = Counters(lookups=10, hits=5, misses=5)
    return Sample(0.0, number, phase, "prose", True, counters, 0, None, None, speed, 2 * private, private, {"GPU0": private}, None)


def observed(samples: list[Sample], *, differences: tuple[Difference, ...] = (), failure: str = "", lookups: int = 10) -> Observed:
    return Observed(samples, {"prose": 3}, differences, {"prose": True}, {"exact": True, "lookups": lookups}, 1.0, 1, 1, 1, failure)


def rounds(n: int, leak: int = 0) -> list[Sample]:
    return [sample(number, phase, 100 * MIB + number * leak) for number in range(n) for phase in PHASES]


def test_a_session_without_a_finding_is_ok() -> None:
    made = document(observed(rounds(20)))
    assert made["ok"]
    assert (made["rounds"], made["verdicts"]["memory"]["GPU0"]["verdict"], made["verdicts"]["anchors"]["verdict"]) == (20, "flat", "equal")


@pytest.mark.parametrize(
    "found",
    [
        observed(rounds(20), differences=(Difference(1, "churn code", "prose", "the first time", 3, "token 1 instead of 2"),)),
        observed(rounds(20), lookups=0),
        observed(rounds(20), failure="expected llama_decode of 1 tokens to succeed, found -3"),
        observed(rounds(20, leak=MIB)),
    ],
    ids=["difference", "no lookups", "failure", "leak"],
)
def test_each_finding_alone_is_not_ok(found: Observed) -> None:
    assert not document(found)["ok"]


def test_a_round_that_was_not_finished_is_not_judged() -> None:
    made = document(observed([*rounds(20), *rounds(21, leak=100 * MIB)[-4:]]))
    assert made["ok"]
    assert made["verdicts"]["memory"]["process"]["rounds"] == 16
