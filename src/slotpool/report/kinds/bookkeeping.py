"""Records of `bookkeeping`: time of the pool's own work per expert matmul. Reads them, judges nothing."""

from __future__ import annotations

from collections.abc import Iterator

from slotpool.report import words
from slotpool.report.facts import LOWER, Content, Figure, Headline
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind
from slotpool.report.tables import figures_table


def content(results: Field, flags: Field) -> Content:
    """Microseconds and hit rate by policy and slots."""
    times, hits = [], []
    for case in results["cases"].each():
        policy, slots = case["policy"].text(), f"{case['slots'].count()} slots"
        times.append(Figure(policy, "per expert matmul", "us", case["us_per_matmul"].spread(), slots, LOWER))
        hits.append(Figure(policy, "hit rate", "share", case["hit_rate"].spread(), slots, is_counted=True))
    tables = (figures_table(times), figures_table(hits, "Hit rates of the routing"))
    return Content(figures=(*times, *hits), tables=tables, headlines=tuple(_headlines(times)))


def _headlines(times: list[Figure]) -> Iterator[Headline]:
    for policy in dict.fromkeys(one.arm for one in times):
        mine = [one for one in times if one.arm == policy]
        slots = " and ".join(one.workload.removesuffix(" slots") for one in mine)
        values = " and ".join(words.number(one.spread.median) for one in mine)
        low, high = min(one.spread.low for one in mine), max(one.spread.high for one in mine)
        spread = f"{words.number(low)} to {words.number(high)}"
        yield Headline(f"bookkeeping per expert matmul at {slots} slots, policy {policy}", f"{values} us", spread)


KIND = Kind(
    "Bookkeeping",
    "The pool alone, without a model: finding, admitting and evicting for the three expert matmuls of a layer, 8 experts a token "
    "drawn by weights 1/rank from twice as many experts as there are slots. Hits, misses and evictions all occur.",
    content,
)
