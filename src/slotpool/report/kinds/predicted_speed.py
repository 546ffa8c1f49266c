"""Records of `predicted_speed`: what `slotpool plan` predicts against what is measured. Reads them, judges nothing."""

from __future__ import annotations

from statistics import median

from slotpool.report import words
from slotpool.report.facts import NEITHER, Content, Figure, Headline, Ratio, Spread, Table
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind

_ERROR = "predicted over measured"


def content(results: Field, flags: Field) -> Content:
    """A row per cell; the pool against plain as measured, with the verdict that the plan gave before."""
    cells, routing = results["cells"].each(), flags["routing"].text()
    figures, ratios = [], []
    for cell in cells:
        where = f"{routing}, link {cell['ratio'].number():g} of RAM, {cell['share'].number():.0%} of the experts"
        for arm in ("pool", "plain"):
            figures.append(Figure(arm, "generation", "tokens/s", cell[arm]["measured"].spread(), where))
            error = cell[arm]["predicted"].number() / max(cell[arm]["measured"].number(), 1e-9)
            figures.append(Figure(arm, _ERROR, "", Spread(error, error, error), where, NEITHER))
        ratio = cell["pool"]["measured"].number() / max(cell["plain"]["measured"].number(), 1e-9)
        said = f"one run; the plan said {cell['verdict'].text()}"
        ratios.append(Ratio("pool", "plain", "generation", Spread(ratio, ratio, ratio), where, said))
    errors = [figure.spread.median for figure in figures if figure.what == _ERROR]
    headline = Headline(
        f"tokens/s that the plan predicts over measured, routing {routing}", words.times(median(errors)), words.range_of(errors)
    )
    return Content(tuple(figures), tuple(ratios), (_table(routing, cells),), headlines=(headline,))


def _table(routing: str, cells: list[Field]) -> Table:
    header = ("link / RAM", "slots", "hit rate, predicted", "measured", *_columns("pool"), *_columns("plain"), "pool / plain", "plan said")
    return Table(f"Routing: {routing}, tokens/s", header, tuple(_row(cell) for cell in cells), n_text=0)


def _columns(arm: str) -> tuple[str, ...]:
    return (f"{arm}, predicted", "measured", "predicted / measured")


def _row(cell: Field) -> tuple[str, ...]:
    hits, speeds = cell["hit_rate"], [(cell[arm]["predicted"].number(), cell[arm]["measured"].number()) for arm in ("pool", "plain")]
    pairs = [text for p, m in speeds for text in (words.number(p), words.number(m), f"{p / max(m, 1e-9):.2f}")]
    ratio = words.times(speeds[0][1] / max(speeds[1][1], 1e-9))
    rates = (f"{hits['predicted'].number():.3f}", f"{hits['measured'].number():.3f}")
    return (f"{cell['ratio'].number():g}", f"{cell['share'].number():.0%}", *rates, *pairs, ratio, cell["verdict"].text())


KIND = Kind(
    "What the plan predicts",
    "Probe, reservation, simulated hit rate and plan as a user gets them, on the chaos device in declared time, against what the "
    "plan then does.",
    content,
    apart=("routing",),
)
