"""From records to sheets: every kind in the repository, figures with their origin, the newest of a series, and damage that is named."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from slotpool import records
from slotpool.errors import SlotpoolError
from slotpool.report import markdown, sheets, words
from slotpool.report.facts import Sheet
from slotpool.report.fields import Field
from slotpool.report.kinds import KINDS
from slotpool.report.losses import losses
from tests.unit.report_records import decode, record, spread, written

RECORDS = sorted((Path(__file__).parents[2] / "benchmarks/records").glob("*.jsonl"))


def sheet(made: dict[str, Any]) -> Sheet:
    return sheets.sheet_of(records.check(json.loads(json.dumps(made))), "x.jsonl", 7)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_record_of_the_repository_has_a_sheet_of_its_own_kind(path: Path) -> None:
    for found in sheets.read([path]):
        assert found.source.kind == path.stem
        assert found.source.kind in KINDS
        assert found.content.tables
        assert found.content.figures
        for table in found.content.tables:
            assert table.rows
            assert {len(row) for row in table.rows} == {len(table.header)}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_figures_and_ratios_of_a_record_are_told_apart_by_their_names(path: Path) -> None:
    for found in sheets.read([path]):
        figures = [(one.workload, one.arm, one.what) for one in found.content.figures]
        ratios = [(one.workload, one.arm, one.against, one.what) for one in found.content.ratios]
        assert len(set(figures)) == len(figures)
        assert len(set(ratios)) == len(ratios)


def test_medians_that_are_shown_stand_in_the_record() -> None:
    made = decode(1.1, 0.9, 1.05, 1.2, 1.3, 1.4, 1.5)
    (pool, plain), (ratio,) = sheet(made).content.figures, sheet(made).content.ratios
    assert (pool.arm, pool.spread.median, pool.spread.samples) == (
        "pool",
        made["results"]["pool_tps"]["median"],
        tuple(made["results"]["pool_tps"]["samples"]),
    )
    assert plain.spread.median == 10.0
    assert (ratio.spread.median, ratio.verdict) == (1.2, "no difference shown")
    assert "1.200x" in markdown.document([sheet(made)])


def test_every_table_says_where_it_comes_from() -> None:
    text = markdown.document([sheet(decode(1.1, 1.2, uncommitted_changes=True))])
    assert "2026-01-02T03:04:05Z, commit abc1234 with uncommitted changes, A processor, 2 cores, 8GiB" in text


def test_an_unknown_kind_is_shown_by_its_samples_and_says_so() -> None:
    found = sheet(record("tomorrow", {"a": {"b": [spread(1, 2, 3)]}, "c": "no number", "d": 7}))
    assert "tomorrow" in found.title
    assert [(one.what, one.spread.median) for one in found.content.figures] == [("a.b[0]", 2)]


# ---- series ----


def test_the_newest_of_a_series_counts() -> None:
    old, new, other = decode(1.1, date="2026-01-01"), decode(1.2, date="2026-01-03"), decode(1.3, machine={"cpu": "Another", "n_cores": 4})
    for order in ([old, new, other], [new, other, old]):
        assert [one.content.ratios[0].spread.median for one in sheets.newest(map(sheet, order))] in ([1.2, 1.3], [1.3, 1.2])


def test_of_one_day_the_later_record_counts() -> None:
    assert [one.content.ratios[0].spread.median for one in sheets.newest([sheet(decode(1.1)), sheet(decode(1.2))])] == [1.2]


def test_routings_of_predicted_speed_are_series_of_their_own() -> None:
    assert len(sheets.newest([sheet(predicted("flat")), sheet(predicted("skewed")), sheet(predicted("flat"))])) == 2


def predicted(routing: str) -> dict[str, Any]:
    pair = {"predicted": 11.0, "measured": 10.0}
    cell = {"ratio": 0.5, "share": 0.25, "verdict": "go", "slots": [8], "hit_rate": {"predicted": 0.5, "measured": 0.6}, "pool": pair}
    return record("predicted_speed", {"cells": [cell | {"plain": {"predicted": 10.0, "measured": 20.0}}]}, flags={"routing": routing})


# ---- where we lose ----


def test_losses_are_the_ratios_below_one_and_no_others() -> None:
    found = losses([sheet(decode(1.1, 1.2)), sheet(decode(0.9, 0.8)), sheet(predicted("flat"))])
    assert [(row[0], row[5], row[7]) for row in found.table.rows] == [
        (KINDS["decode_resident"].title, "0.850x", "worse in both"),
        (KINDS["predicted_speed"].title, "0.500x", "one run; the plan said go"),
    ]


def test_what_is_left_out_of_many_losses_is_said() -> None:
    cells = [
        {
            "ratio": 0.1 * n,
            "share": 0.5,
            "hit_rate": 0.5,
            "arms": {arm: spread(10, 10) for arm in ("plain", "cpu", "copy")} | {"auto": spread(9, 9)},
        }
        for n in range(1, 21)
    ]
    found = losses([sheet(record("device_grid", {"grids": {"text": cells}}))])
    assert len(found.table.rows) == 12
    assert found.left_out == ("Misses on a device: 28 more of 40 ratios, 0.900x to 0.900x",)


# ---- damage ----


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"ratio": "fast"}, "results.ratio"),
        ({"ratio": {"median": 1, "low": 2, "high": 3}}, "results.ratio"),
        ({"ratio": {"median": 1, "low": True, "high": 3}}, "results.ratio.low"),
        ({"ratio": {"median": 1, "low": 1}}, "results.ratio.high"),
        ({"pool_tps": spread(1) | {"samples": [1, "x"]}}, "results.pool_tps.samples[1]"),
        ({"pool_tps": []}, "results.pool_tps"),
        ({"pool_tps": 10**30}, ""),
    ],
)
def test_a_wrong_value_is_named_with_file_record_and_field(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    made = decode(1.1, 1.2)
    made["results"] |= change
    with pytest.raises(SlotpoolError) as caught:
        sheets.read([written(tmp_path / "x.jsonl", decode(1.0, 1.0), made)])
    assert "x.jsonl" in str(caught.value)
    assert f"record 2, field {field}" in caught.value.where if field else "line 2" in caught.value.where
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("value", [None, True, "1", [], {}, math.nan, math.inf, 10**400])
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    with pytest.raises(SlotpoolError, match="expected a "):
        Field(value, "here", "x").number()


def test_lists_have_bounds() -> None:
    with pytest.raises(SlotpoolError, match="at most 100000 items"):
        Field([0] * 100_001, "here", "x").each()


@pytest.mark.parametrize(
    ("raw", "shown"), [("Q4_K", "Q4_K"), ("_x_", "\\_x\\_"), ("a|b", "a\\|b"), ("a\\b", "a\\\\b"), ("<b>", "&lt;b&gt;")]
)
def test_text_is_text_in_markdown(raw: str, shown: str) -> None:
    assert markdown.text(raw) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.00001, "1e-05"),
        (0.0123, "0.012"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (2e5, "200000"),
        (26.9e6, "26.9 million"),
        (0, "0"),
    ],
)
def test_numbers_have_about_three_digits(value: float, shown: str) -> None:
    assert words.number(value) == shown


def test_a_record_cannot_break_out_of_markdown() -> None:
    evil = "a|b\n# <script>x</script> `c` [d](e) \x1b[31m"
    cell = {"policy": evil, "slots": 1, "us_per_matmul": spread(1.0), "hit_rate": 0.5}
    text = markdown.document([sheet(record("bookkeeping", {"cases": [cell]}))])
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\n# " not in text
    rows = [line for line in text.splitlines() if line.startswith("| 1 slots")]
    assert [line.replace("\\|", "").count("|") for line in rows] == [7, 7]
