"""Where we lose: ratios below 1, the worst first. Shows and measures nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slotpool.report import words
from slotpool.report.facts import Ratio, Sheet, Table

_MOST = 12
"""Rows of one record."""


@dataclass(frozen=True)
class Losses:
    """`table` has every loss, the worst of each record where they are many; `left_out` says what is not in it."""

    table: Table
    left_out: tuple[str, ...]


def losses(sheets: Iterable[Sheet]) -> Losses:
    """The ratios of `sheets` whose median is below 1."""
    rows: list[tuple[str, ...]] = []
    left_out = []
    for sheet in sheets:
        below = sorted((one for one in sheet.content.ratios if one.is_loss), key=lambda one: one.spread.median)
        rows += [_row(sheet, one) for one in below[:_MOST]]
        if below[_MOST:]:
            rest = below[_MOST:]
            reach = f"{words.times(rest[0].spread.median)} to {words.times(rest[-1].spread.median)}"
            left_out.append(f"{sheet.title}: {len(rest)} more of {len(sheet.content.ratios)} ratios, {reach}")
    header = ("benchmark", "workload", "what", "arm", "against", "median", "lowest to highest", "verdict")
    return Losses(Table("Where we lose", header, tuple(rows), n_text=5), tuple(left_out))


def _row(sheet: Sheet, ratio: Ratio) -> tuple[str, ...]:
    spread = ratio.spread
    cells = (words.times(spread.median), words.times_between(spread), ratio.verdict)
    return (sheet.title, ratio.workload, ratio.what, ratio.arm, ratio.against, *cells)
