"""What a report comes to: every way to be exact, equivalent or different, on reports made up for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotpool.drift import document, judge
from slotpool.drift.facts import Counts, Difference, Prompts, Report, Share
from slotpool.drift.numbers import Kld, Ppl
from slotpool.drift.verdict import KLD_MEAN, KLD_P99, TOP1_SHARE

FIRST = Difference("prose.txt", 17, 523, " the")
SAME = Share(Kld(0, 0, 0, 0), 0, 1000, 0, 0, 0.0, None)
SMALL = Share(Kld(1e-4, 1e-5, 1e-3, 0.1), 3, 1000, 40, 0, 0.01, FIRST)
LARGE = Share(Kld(0.1, 0.01, 1.0, 5.0), 90, 1000, 900, 0, 3.0, FIRST)
PROMPTS = Prompts(2, 1024, {"cpu": Ppl(10.0, 1.0), "pool": Ppl(10.0, 1.0)}, True, True, None)


def report(pool: Share | None = SAME, total: Share | None = None, placement: Share | None = None, exact: bool = True) -> Report:
    return Report(
        engine="engine",
        n_tokens=1000,
        total=total or pool or SAME,
        placement=placement,
        pool=pool,
        why_no_device="" if pool else "it does not fit",
        texts=(),
        prompts=PROMPTS,
        arms=(),
        counts=Counts(10, 5, 2, 1),
        stats={"exact": exact},
        n_threads=1,
        n_ctx=512,
        damaged="",
        files={},
    )


def test_the_same_bits_are_exact() -> None:
    found = judge(report())
    assert (found.verdict, found.expected, found.is_met) == ("exact", "exact", True)


def test_one_last_bit_is_different_where_the_pool_promises_exact_and_the_token_is_named() -> None:
    found = judge(report(SMALL))
    assert (found.verdict, found.is_met) == ("different", False)
    assert found.reason.endswith("the bits differ after prose.txt token 17 (id 523, ' the')")


def test_a_promise_that_is_broken_is_different_whatever_was_expected() -> None:
    assert not judge(report(SMALL), "equivalent").is_met


def test_small_differences_are_equivalent_where_other_kernels_computed_rows() -> None:
    found = judge(report(SMALL, exact=False))
    assert (found.verdict, found.expected, found.is_met) == ("equivalent", "equivalent", True)
    assert not judge(report(SMALL, exact=False), "exact").is_met


def test_large_differences_are_different_and_every_bound_is_named() -> None:
    found = judge(report(LARGE, exact=False))
    assert (found.verdict, found.is_met) == ("different", False)
    assert [word in found.reason for word in ("mean KL", "p99", "90 top-1 flips of 1000")] == [True] * 3


@pytest.mark.parametrize(
    "broken",
    [
        replace(SMALL, kld=replace(SMALL.kld, mean=KLD_MEAN * 1.01)),
        replace(SMALL, kld=replace(SMALL.kld, p99=KLD_P99 * 1.01)),
        replace(SMALL, top1_flips=int(TOP1_SHARE * 1000) + 1),
    ],
    ids=["mean", "p99", "flips"],
)
def test_each_bound_alone_decides(broken: Share) -> None:
    assert judge(report(broken, exact=False)).verdict == "different"


def test_the_maximum_alone_decides_nothing() -> None:
    assert judge(report(replace(SMALL, kld=replace(SMALL.kld, max=20.0)), exact=False)).verdict == "equivalent"


def test_a_pool_may_move_as_much_as_its_placement_does() -> None:
    assert judge(report(LARGE, placement=LARGE, exact=False)).verdict == "equivalent"
    assert judge(report(LARGE, placement=SMALL, exact=False)).verdict == "different"


def test_placement_is_not_the_pools_fault() -> None:
    found = judge(report(SAME, total=LARGE, placement=LARGE))
    assert (found.verdict, found.is_met) == ("exact", True)


def test_without_plain_on_the_device_the_whole_drift_is_judged_and_no_promise_can_be_broken() -> None:
    found = judge(report(None, total=SMALL))
    assert (found.verdict, found.expected, found.is_met) == ("equivalent", "exact", False)
    assert "pool and placement together" in found.reason
    assert judge(report(None, total=SMALL), "equivalent").is_met
    assert document(report(None, total=SMALL), found)["pool_share"] == {
        "kld_max": None,
        "first_difference": None,
        "reason": "it does not fit",
    }


def test_logits_that_are_no_numbers_are_different_even_where_they_are_equal() -> None:
    assert judge(report(replace(SAME, n_not_finite=1))).verdict == "different"


def test_prompts_that_change_once_the_pool_is_full_are_different() -> None:
    made = replace(report(), prompts=replace(PROMPTS, is_same_after=False, first_different_chunk=1))
    found = judge(made)
    assert (found.verdict, found.reason) == ("different", "chunk 1 of the prompts is not the same after the pool was filled")


def test_prompts_of_other_bits_than_plain_are_different_on_the_cpu_and_no_measure_on_a_device() -> None:
    prompts = replace(PROMPTS, is_plain=False)
    assert judge(replace(report(), prompts=prompts)).verdict == "different"
    assert judge(replace(report(placement=SMALL), prompts=prompts)).verdict == "exact"


def test_the_document_has_the_fields_that_tools_rely_on() -> None:
    made = report(SMALL)
    found = document(made, judge(made))
    assert {"tokens", "kld", "top1_flips", "pool_share", "verdict"} <= found.keys()
    assert set(found["kld"]) == {"mean", "median", "p99", "max"}
    assert found["pool_share"]["kld_max"] == 0.1
    assert found["pool_share"]["first_difference"] == {"text": "prose.txt", "index": 17, "token": 523, "piece": " the"}
