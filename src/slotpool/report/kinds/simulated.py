"""Records of `simulate`: hit rates of policies on a recorded trace, and the simulator's speed. Reads them, judges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slotpool.report.chart import Chart, Line, nice_ticks
from slotpool.report.facts import Content, Figure, Headline, Table
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind
from slotpool.report.tables import figures_table

_PARTS = (("whole", "whole trace"), ("judged", "examples 247 and later"), ("admit_all", "whole trace, every miss admitted"))


def content(results: Field, flags: Field) -> Content:
    """Hit rates and shares of Belady by policy and slots, three parts; lookups per second."""
    rates = [figure for key, part in _PARTS for figure in _rates(results[key], part)]
    speeds = tuple(
        Figure(name, "simulated", "lookups/s", found.spread(), "8 of 32 slots, one core")
        for name, found in results["lookups_per_second"].items()
    )
    tables = tuple(_table(results[key], part) for key, part in _PARTS)
    return Content(
        (*rates, *speeds),
        tables=(*tables, figures_table(speeds, "Speed of the simulator")),
        charts=(_chart(results["whole"]),),
        headlines=(_headline(rates), *_speed_headlines(speeds)),
    )


def _headline(rates: list[Figure]) -> Headline:
    """The default policy's shares of the optimum on the examples that chose nothing."""
    judged = [one for one in rates if one.arm == "default" and one.what == "share of Belady" and one.workload.startswith(_PARTS[1][1])]
    slots = " / ".join(one.workload.rsplit(", ", 1)[-1].removesuffix(" slots") for one in judged)
    what = f"hit rate of the default policy as a share of Belady at {slots} of 32 slots, {_PARTS[1][1]}"
    return Headline(what, " / ".join(f"{one.spread.median:.3f}" for one in judged))


def _speed_headlines(speeds: Sequence[Figure]) -> Iterator[Headline]:
    for one in speeds:
        low, middle, high = (f"{value / 1e6:.1f}" for value in (one.spread.low, one.spread.median, one.spread.high))
        yield Headline(f"simulator, million lookups a second on one core, {one.arm}", middle, f"{low} to {high}")


def _rates(rows: Field, part: str) -> list[Figure]:
    found = []
    for row in rows.each():
        where = f"{part}, {row['slots'].number():g} slots"
        for key, what in (("hit_rate", "hit rate"), ("share_of_belady", "share of Belady")):
            found.append(Figure(row["policy"].text(), what, "share", row[key].spread(), where, is_counted=True))
    return found


def _table(rows: Field, part: str) -> Table:
    cells = tuple(
        (
            row["policy"].text(),
            f"{row['slots'].number():g}",
            f"{row['lookups'].count()}",
            f"{row['hit_rate'].number():.4f}",
            f"{row['share_of_belady'].number():.4f}",
        )
        for row in rows.each()
    )
    return Table(part[0].upper() + part[1:], ("policy", "slots", "lookups", "hit rate", "share of Belady"), cells)


def _chart(rows: Field) -> Chart:
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows.each():
        points.setdefault(row["policy"].text(), []).append((row["slots"].number(), row["hit_rate"].number()))
    lines = tuple(Line(name, tuple(found), f"s{index % 6}", has_marks=True) for index, (name, found) in enumerate(points.items()))
    slots = sorted({x for found in points.values() for x, _ in found})
    ticks = tuple((x, f"{x:g}") for x in slots)
    low = min((y for found in points.values() for _, y in found), default=0.0)
    return Chart("Hit rate against slots, whole trace", "Belady knows the future.", "slots", "hit rate", lines, ticks, nice_ticks(low, 1.0))


KIND = Kind(
    "Simulated hit rates",
    "The recorded routing of gpt-oss-20b (24 layers, 4 of 32 experts, one request at a time) through the pool's own policies, event "
    "by event, one pool a layer. Belady knows the future and may refuse to admit; belady-admit may not. No constant was chosen on "
    "the examples from 247 on.",
    content,
)
