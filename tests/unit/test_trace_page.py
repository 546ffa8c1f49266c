"""The page of an analysis: one file that needs no other, whole whatever the trace lacks, safe whatever it is called."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

from slotpool import trace
from slotpool.analyze import analyze
from slotpool.report.chart import Chart, Line, nice_ticks, svg
from slotpool.report.image import shades
from slotpool.report.trace_page import render

VOID = {"meta", "img"}


class Nesting(HTMLParser):
    """Fails where tags do not close in order; keeps text and figure headings."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def made(n_rows: int, layers: tuple[int, ...] = (0, 1, 2), segments: tuple[trace.Segment, ...] = (), name: str = "x") -> trace.Trace:
    rng = np.random.default_rng(1)
    groups = []
    for layer in layers:
        ids = np.array([rng.choice(16, 2, replace=False) for _ in range(n_rows)], np.int32)
        groups.append(trace.Group(layer, "exps", 16, 2, ids, trace.single_events(ids)))
    return trace.Trace(trace.Facts(name, len(layers), 16, 2), tuple(groups), segments)


def headings(text: str) -> list[str]:
    parser = Nesting()
    parser.feed(text)
    assert parser.open == []
    return parser.headings


def test_a_full_trace_has_every_figure() -> None:
    text = render(analyze(made(800, segments=(trace.Segment(0, "a"), trace.Segment(400, "b")))), "a.trace")
    wanted = [
        "Hit rate against slots",
        "Coverage",
        "Working set",
        "Layer by layer",
        "From cold to steady",
        "Topic switch",
        "Heat map",
        "Layers",
    ]
    assert headings(text) == wanted
    assert not re.search(r"nan|inf\b", re.sub(r"base64,[^\"]*", "", text), re.IGNORECASE)


@pytest.mark.parametrize("found", [made(1), made(20, (7,)), trace.heat_of(made(50))], ids=["one token", "one layer", "heat"])
def test_a_poor_trace_has_a_page_all_the_same(found: trace.Trace | trace.Heat) -> None:
    assert {"Coverage", "Heat map", "Layers"} <= set(headings(render(analyze(found), "a")))


def test_a_page_needs_nothing_from_elsewhere() -> None:
    text = render(analyze(made(100)), "a.trace")
    assert not re.search(r"https?:|<script|<link|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text


def test_names_cannot_break_out_of_the_page() -> None:
    evil = '<script>alert("1")</script>\x1b[31m'
    text = render(analyze(made(100, name=evil)), evil)
    headings(text)
    assert "<script" not in text
    assert "\x1b" not in text


def test_charts_are_well_formed_and_stay_inside_the_paper() -> None:
    lines = (Line("a & b", ((1, 0.0), (100, 1.0)), "s0", has_marks=True), Line("c", ((1, 1.0), (100, 1.0)), "s1"), Line("", (), "thin"))
    chart = Chart("t <", "n", "x", "y", lines, ((1, "1"), (100, "100")), nice_ticks(0, 1), is_log=True, marks=((10.0, "ten"),))
    root = ET.fromstring(svg(chart))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    points = [tuple(map(float, pair.split(","))) for line in root.iter("polyline") for pair in line.attrib["points"].split()]
    assert len(points) == 4
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    labels = [float(text.attrib["y"]) for text in root.iter("text") if "label" in text.attrib["class"]]
    assert len(labels) == 2
    assert abs(labels[0] - labels[1]) >= 15  # their lines end in the same place


def test_of_lines_that_end_alike_the_higher_one_is_named_first() -> None:
    lines = (Line("low", ((0, 0.1), (1, 1.0)), "s0"), Line("high", ((0, 0.9), (1, 1.0)), "s1"))
    root = ET.fromstring(svg(Chart("t", "n", "x", "y", lines, ((0, "0"), (1, "1")), nice_ticks(0, 1))))
    assert [text.text for text in root.iter("text") if "label" in text.attrib["class"]] == ["high", "low"]


@pytest.mark.parametrize(("low", "high", "wanted"), [(0, 1, "0 0.2 0.4 0.6 0.8 1"), (0, 32, "0 10 20 30 40"), (0, 0, "0")])
def test_ticks_are_round_and_enclose_the_values(low: float, high: float, wanted: str) -> None:
    assert " ".join(text for _, text in nice_ticks(low, high)) == wanted


def test_an_image_has_a_pixel_for_every_value() -> None:
    uri = shades(np.array([[0.0, 1.0], [0.5, np.nan]]), (1, 2, 3))
    assert uri.startswith("data:image/png;base64,iVBORw0KGgo")
