"""The page of records: one file that needs no other, whole for every kind, safe whatever stands in a record."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from slotpool.report import intervals, performance, sheets
from slotpool.report.compare import compare
from slotpool.report.facts import Spread
from slotpool.report.records_page import render, render_comparison
from tests.unit.report_records import decode, record, spread, written
from tests.unit.test_trace_page import headings

RECORDS = sorted((Path(__file__).parents[2] / "benchmarks/records").glob("*.jsonl"))


def test_the_page_of_all_records_is_whole() -> None:
    shown = sheets.newest(sheets.read(RECORDS))
    text = render(shown, 3)
    found = headings(text)
    assert {sheet.title for sheet in shown} <= set(found)
    assert "3 older records" in text
    assert not re.search(r"https?:|<script|<link|@import|url\(", text)
    assert not re.search(r"\bnan\b|\binf\b", text, re.IGNORECASE)


def test_every_part_of_the_page_says_its_record() -> None:
    shown = sheets.newest(sheets.read(RECORDS))
    assert re.findall(r'class="origin">([^<]*)<', render(shown)) == [sheets.origin(sheet.source).replace("&", "&amp;") for sheet in shown]


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    made = record(
        "bookkeeping", {"cases": [{"policy": evil, "slots": 1, "us_per_matmul": spread(1.0), "hit_rate": 0.5}]}, slotpool=evil, commit=evil
    )
    found = sheets.read([written(tmp_path / "x.jsonl", made)])
    for text in (render(found), render_comparison(compare(found, found))):
        headings(text)
        assert "<script" not in text
        assert "\x1b" not in text


def test_a_comparison_has_a_page(tmp_path: Path) -> None:
    rounds = [1.0, 1.01, 0.99, 1.02, 0.98]
    before, after = (sheets.read([written(tmp_path / f"{speed}.jsonl", decode(*(speed * one for one in rounds)))]) for speed in (1.0, 1.5))
    assert headings(render_comparison(compare(before, after))) == ["After over before", "In both"]


@pytest.mark.parametrize("spread", [Spread(1, 1, 1), Spread(0.9, 0.8, 1.2), Spread(20, 15, 25), Spread(0.001, 0.0, 5), Spread(0, 0, 0)])
def test_intervals_are_well_formed_and_stay_inside_the_paper(spread: Spread) -> None:
    root = ET.fromstring(intervals.svg([intervals.Interval("a < b", spread, "x"), intervals.Interval("c", Spread(1, 0.9, 1.1), "y")], "t"))
    width = float(root.attrib["viewBox"].split()[2])
    places = [float(line.attrib[name]) for line in root.iter("line") for name in ("x1", "x2")]
    assert all(0 <= place <= width for place in places)
    assert len(list(root.iter("circle"))) == 2


# ---- docs/performance.md ----

SECONDS = {"decode_resident": 60, "tomorrow": 1200}


def test_the_document_begins_with_where_we_lose(tmp_path: Path) -> None:
    text = performance.page(sheets.read([written(tmp_path / "x.jsonl", decode(0.9, 0.8, 0.7))]), SECONDS)
    assert text.index("## Where we lose") < text.index("## Decode with every expert in a slot")
    assert "| 0.800x | 0.700x to 0.900x | worse in all 3 |" in text


def test_a_benchmark_without_a_record_is_named(tmp_path: Path) -> None:
    text = performance.page(sheets.read([written(tmp_path / "x.jsonl", decode(0.9, 0.8, 0.7))]), SECONDS)
    assert "take about 21 minutes on two cores, `tomorrow` 20 of them. Without a record so far: `tomorrow`." in text


def test_without_a_loss_the_document_says_so(tmp_path: Path) -> None:
    assert "None of the records has one." in performance.page(sheets.read([written(tmp_path / "x.jsonl", decode(1.1, 1.2))]), SECONDS)


def test_a_new_record_makes_the_document_stale(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", decode(1.1, 1.2))
    before = performance.page(sheets.read([path]), SECONDS)
    written(path, decode(1.1, 1.2), decode(1.3, 1.4))
    assert performance.page(sheets.read([path]), SECONDS) != before
