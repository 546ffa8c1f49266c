"""Two sets of records against each other: matched by key, judged by both samples, and nothing dropped without a word."""

from __future__ import annotations

import json
from typing import Any

from slotpool import records
from slotpool.report import document, sheets
from slotpool.report.compare import compare
from slotpool.report.facts import Sheet
from slotpool.report.pairs import comparison_markdown
from tests.unit.report_records import decode, record, spread

EIGHT = (1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99)


def sheet(made: dict[str, Any]) -> Sheet:
    return sheets.sheet_of(records.check(json.loads(json.dumps(made))), "x.jsonl", 1)


def verdicts(before: dict[str, Any], after: dict[str, Any], *ignored: str) -> dict[str, str]:
    return {pair.before.arm: pair.verdict for pair in compare([sheet(before)], [sheet(after)], ignored).pairs}


def bookkeeping(time: float, hits: float = 0.5) -> dict[str, Any]:
    times = spread(*(time * one for one in EIGHT))
    return record("bookkeeping", {"cases": [{"policy": "lru", "slots": 64, "us_per_matmul": times, "hit_rate": hits}]})


def test_a_faster_arm_is_better_and_an_equal_one_is_not() -> None:
    assert verdicts(decode(*EIGHT), decode(*(1.2 * one for one in EIGHT))) == {
        "pool": "better",
        "plain, not repacked": "no difference shown",
    }


def test_less_time_is_better() -> None:
    pairs = {pair.before.what: pair.verdict for pair in compare([sheet(bookkeeping(1.0))], [sheet(bookkeeping(0.8))]).pairs}
    assert pairs == {"per expert matmul": "better", "hit rate": "equal"}


def test_counts_are_equal_or_changed() -> None:
    pairs = {pair.before.what: pair.verdict for pair in compare([sheet(bookkeeping(1.0))], [sheet(bookkeeping(1.0, 0.51))]).pairs}
    assert pairs["hit rate"] == "changed"


def test_few_samples_have_a_ratio_and_no_verdict() -> None:
    (pool, _) = compare([sheet(decode(1.0, 1.0))], [sheet(decode(2.0, 2.0))]).pairs
    assert pool.verdict == "too few samples to say"
    assert pool.ratio is not None
    assert pool.ratio.median == 2.0


def test_another_machine_model_or_flag_is_not_compared_unless_it_is_ignored() -> None:
    model = {"name": "a", "bytes": 1, "sha256": "0" * 64, "fingerprint": "1" * 64}
    others = {"machine": {"cpu": "Another", "n_cores": 2}, "model": model, "flags": {"threads": 3}}
    for part, value in others.items():
        before, after = sheet(decode(*EIGHT)), sheet(decode(*EIGHT, **{part: value}))
        found = compare([before], [after])
        assert (len(found.pairs), len(found.only_before), len(found.only_after)) == (0, 1, 1)
        assert len(compare([before], [after], [part]).pairs) == 2


def test_the_number_of_rounds_is_no_other_workload() -> None:
    assert len(compare([sheet(decode(*EIGHT, flags={"rounds": 8}))], [sheet(decode(*EIGHT, flags={"rounds": 9}))]).pairs) == 2


def test_what_is_in_one_set_alone_is_listed() -> None:
    found = compare([sheet(decode(*EIGHT)), sheet(bookkeeping(1.0))], [sheet(decode(*EIGHT))])
    ((source, figures),) = found.only_before
    assert (source.kind, len(figures), found.only_after) == ("bookkeeping", 2, ())
    assert "bookkeeping" in comparison_markdown(found)


def test_the_document_has_both_samples_and_sources() -> None:
    made = document.comparison(compare([sheet(decode(*EIGHT))], [sheet(decode(*EIGHT, commit="fff0000"))]))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    pair = made["pairs"][0]
    assert (len(pair["before"]["samples"]), [one["commit"] for one in pair["sources"]]) == (8, ["abc1234", "fff0000"])


def test_the_newest_record_of_each_set_is_compared() -> None:
    old, new = decode(*(5 * one for one in EIGHT), date="2025-01-01"), decode(*EIGHT)
    assert all(pair.verdict == "no difference shown" for pair in compare(list(map(sheet, (new, old))), [sheet(decode(*EIGHT))]).pairs)
