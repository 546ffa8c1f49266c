"""Records of `device_grid`: ways to serve misses over link speeds and slots, in declared time. Reads them, judges nothing but the pairs."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from slotpool.report import words
from slotpool.report.chart import Chart, Line, nice_ticks
from slotpool.report.facts import Content, Figure, Headline, Ratio, Spread, Table, spread_of
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind, paired

_OTHERS = ("plain", "cpu", "copy")
_ARMS = (*_OTHERS, "auto")
_REACH = 0.97


def content(results: Field, flags: Field) -> Content:
    """A table and a chart for each routing; `auto` against the best of the others at every point."""
    figures: list[Figure] = []
    ratios: list[Ratio] = []
    tables, charts = [], []
    for routing, cells in results["grids"].items():
        points = [_speeds(routing, cell) for cell in cells.each()]
        best = [_over(point, max(_OTHERS, key=lambda arm: point[arm].spread.median), "best of the others: ") for point in points]
        figures += [figure for point in points for figure in point.values()]
        ratios += [*best, *(_over(point, "plain") for point in points)]
        tables.append(_table(routing, cells.each(), best))
        charts.append(_chart(routing, cells.each(), best))
    return Content(tuple(figures), tuple(ratios), (_summary(ratios), *tables), tuple(charts), headlines=tuple(_headlines(ratios)))


def _speeds(routing: str, cell: Field) -> dict[str, Figure]:
    where = f"{routing}, link {cell['ratio'].number():g} of RAM, {cell['share'].number():.1%} slots"
    return {arm: Figure(arm, "generation", "tokens/s", cell["arms"][arm].spread(), where) for arm in _ARMS}


def _over(point: dict[str, Figure], other: str, called: str = "") -> Ratio:
    """`auto` over another arm; rounds of one point are pairs, as the arms took turns."""
    mine, theirs = (point[arm].spread.samples or (point[arm].spread.median,) for arm in ("auto", other))
    over = spread_of([a / b for a, b in zip(mine, theirs, strict=False) if b > 0] or [0.0])
    return paired("auto", called + other, "generation", over, point["auto"].workload)


def _table(routing: str, cells: list[Field], ratios: list[Ratio]) -> Table:
    header = (
        "link / RAM",
        "slots",
        "hit rate",
        *_ARMS,
        "auto / best",
        "lowest to highest",
        "best",
    )
    rows = tuple(
        (
            f"{cell['ratio'].number():g}",
            f"{cell['share'].number():.1%}",
            f"{cell['hit_rate'].number():.1%}",
            *(words.number(cell["arms"][arm]["median"].number()) for arm in _ARMS),
            words.times(ratio.spread.median),
            words.times_between(ratio.spread),
            ratio.against.rpartition(" ")[2],
        )
        for cell, ratio in zip(cells, ratios, strict=True)
    )
    return Table(f"Routing: {routing}, tokens/s", header, rows, n_text=0)


def _summary(ratios: list[Ratio]) -> Table:
    """By routing: how `auto` does against the best of the others, and against plain, over all points."""
    found: dict[tuple[str, str], list[float]] = {}
    for ratio in ratios:
        against = "plain" if ratio.against == "plain" else "best of plain, cpu, copy"
        found.setdefault((ratio.workload.split(",")[0], against), []).append(ratio.spread.median)
    rows = [_summed(routing, against, spread_of(medians)) for (routing, against), medians in found.items()]
    header = ("routing", "auto against", "points", "median", "lowest to highest point", "points at 0.97x or more")
    return Table("All points", header, tuple(rows), n_text=2)


def _headlines(ratios: list[Ratio]) -> Iterator[Headline]:
    for against, is_plain in (("the best of plain, cpu and copy", False), ("plain", True)):
        medians = [one.spread.median for one in ratios if (one.against == "plain") == is_plain]
        what = f"misses on auto, slots on a test device in declared time, {len(medians)} points, against {against}"
        yield Headline(what, words.times(median(medians)), f"{words.range_of(medians)} over the points")


def _summed(routing: str, against: str, medians: Spread) -> tuple[str, ...]:
    n_reached = sum(one >= _REACH for one in medians.samples)
    return (routing, against, str(medians.n), words.times(medians.median), words.times_between(medians), str(n_reached))


def _chart(routing: str, cells: list[Field], ratios: list[Ratio]) -> Chart:
    points: dict[float, list[tuple[float, float]]] = {}
    for cell, ratio in zip(cells, ratios, strict=True):
        points.setdefault(cell["share"].number(), []).append((cell["ratio"].number(), ratio.spread.median))
    xs = sorted({x for found in points.values() for x, _ in found if x > 0}) or [1.0]
    ys = [y for found in points.values() for _, y in found]
    lines = [
        Line(f"{share:.1%} slots".replace(".0%", "%"), tuple(sorted(found)), f"s{index % 6}", has_marks=True)
        for index, (share, found) in enumerate(points.items())
    ]
    even = Line("the best", ((xs[0], 1.0), (xs[-1], 1.0)), "even")
    ticks = nice_ticks(min([*ys, 1.0]), max([*ys, 1.0]))
    x_ticks = tuple((x, f"{x:g}") for x in xs)
    note = "auto over the best of plain, cpu and copy, medians."
    return Chart(f"auto / best: {routing}", note, "link / RAM", "ratio", (even, *lines), x_ticks, ticks, is_log=True)


KIND = Kind(
    "Misses on a device",
    "The chaos device in declared time: its compute, the CPU's experts and the link take what they are said to take, so this "
    "measures how misses are scheduled and not how fast a machine is. Plain is llama.cpp with its experts on the CPU; cpu, copy and "
    "auto are ways of the pool.",
    content,
)
