"""The two tables that most kinds of record share: figures, a row an arm, and ratios with their spread and verdict.

Knows no kind of record.
"""

from __future__ import annotations

from collections.abc import Sequence

from slotpool.report import words
from slotpool.report.facts import Figure, Ratio, Table


def figures_table(figures: Sequence[Figure], title: str = "Measured", note: str = "") -> Table:
    """A row per figure: median, lowest to highest, samples."""
    has_workload = any(figure.workload for figure in figures)
    header = (*(("workload",) if has_workload else ()), "arm", "what", "median", "lowest to highest", "samples")
    rows = [(*((one.workload,) if has_workload else ()), *_figure_row(one)) for one in figures]
    return Table(title, header, tuple(rows), note, n_text=3 if has_workload else 2)


def _figure_row(figure: Figure) -> tuple[str, ...]:
    spread = figure.spread
    cells = (words.measured(spread.median, figure.unit), words.between(spread, figure.unit), words.samples(spread))
    return (figure.arm, words.name_of(figure), *cells)


def ratios_table(ratios: Sequence[Ratio], title: str = "Ratios", note: str = "", spread: str = "lowest to highest") -> Table:
    """A row per ratio; above 1 the first arm is better. `spread` is what the two ends of each are."""
    has_workload = any(ratio.workload for ratio in ratios)
    header = ("arm", "against", "what", "median", spread, "samples", "verdict")
    rows = [(*((one.workload,) if has_workload else ()), *_ratio_row(one)) for one in ratios]
    # the verdict is words in a column of its own at the end
    return Table(title, (*(("workload",) if has_workload else ()), *header), tuple(rows), note, n_text=4 if has_workload else 3)


def _ratio_row(ratio: Ratio) -> tuple[str, ...]:
    spread = ratio.spread
    cells = (words.times(spread.median), words.times_between(spread), words.samples(spread), ratio.verdict)
    return (ratio.arm, ratio.against, ratio.what, *cells)
