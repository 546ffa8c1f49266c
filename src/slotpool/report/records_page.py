"""The page of `slotpool report --html`: a part for each record, with its ratios, curves, tables and origin. Reads no record."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from slotpool.errors import printable
from slotpool.report import intervals, judge, page, words
from slotpool.report.chart import svg
from slotpool.report.compare import Comparison
from slotpool.report.facts import Ratio, Sheet, Table
from slotpool.report.losses import losses
from slotpool.report.pairs import alone_table, pairs_table
from slotpool.report.sheets import origin

MOST_DRAWN = 16
"""Ratios of a record that are drawn; a table has all of them."""


def render(sheets: Sequence[Sheet], n_older: int = 0) -> str:
    """The whole page as text."""
    parts = [page.tiles(_tiles(sheets)), _contents(sheets), _losses(sheets)]
    parts += [_part(sheet, number) for number, sheet in enumerate(sheets)]
    older = f"{n_older} older records of the same series are left out. " if n_older else ""
    return page.page("Records", f"{older}Everything here stands in a record; under each part is which.", parts)


def render_comparison(found: Comparison) -> str:
    """The page of two sets of records."""
    drawn = [pair for pair in found.pairs if pair.ratio is not None and pair.ratio.low < pair.ratio.high]
    rows = [
        intervals.Interval(
            printable(words.figure_in_words(pair.before)), pair.ratio, words.times(pair.ratio.median), pair.verdict == judge.WORSE
        )
        for pair in drawn[:MOST_DRAWN]
        if pair.ratio is not None
    ]
    figures = (
        [
            page.figure(
                "After over before", "With 95 % intervals.", intervals.svg(rows, "after over before", "after over before"), is_wide=True
            )
        ]
        if rows
        else []
    )
    tables = (pairs_table(found), alone_table("Only before", found.only_before), alone_table("Only after", found.only_after))
    figures += [_table(table) for table in tables if table.rows]
    origins = dict.fromkeys(origin(source) for pair in found.pairs for source in pair.sources)
    body = page.figures(figures) + "".join(f'<p class="origin">{escape(printable(text))}</p>' for text in origins)
    return page.page("Two sets of records", f"{len(found.pairs)} figures are in both.", [body])


def _tiles(sheets: Sequence[Sheet]) -> list[tuple[str, str]]:
    ratios = [ratio for sheet in sheets for ratio in sheet.content.ratios]
    dates = sorted(sheet.source.date[:10] for sheet in sheets) or [""]
    return [
        ("records", str(len(sheets))),
        ("newest", dates[-1]),
        ("machines", str(len({(sheet.source.machine, sheet.source.devices) for sheet in sheets}))),
        ("ratios below 1, of all", f"{sum(ratio.is_loss for ratio in ratios)} / {len(ratios)}"),
    ]


def _contents(sheets: Sequence[Sheet]) -> str:
    links = [f'<a href="#r{number}">{escape(printable(sheet.title))}</a>' for number, sheet in enumerate(sheets)]
    return f'<p class="contents">{" · ".join(links)}</p>' if len(sheets) > 1 else ""


def _losses(sheets: Sequence[Sheet]) -> str:
    found = losses(sheets)
    if not found.table.rows:
        return ""
    note = "Ratios with a median below 1, the worst first within a record. " + " ".join(f"{text}." for text in found.left_out)
    return page.figures([_table(found.table, note)])


def _part(sheet: Sheet, number: int) -> str:
    content = sheet.content
    figures = [_ratios(content.ratios)] if 0 < len(content.ratios) <= MOST_DRAWN else []
    figures += [page.figure(chart.title, chart.note, svg(chart)) for chart in content.charts]
    figures += [_table(table) for table in content.tables]
    notes = "".join(f'<p class="after">{escape(printable(note))}</p>' for note in content.notes)
    head = f'<h2 class="part" id="r{number}">{escape(printable(sheet.title))}</h2><p class="sub">{escape(sheet.about)}</p>'
    return f'{head}{page.figures(figures)}{notes}<p class="origin">{escape(origin(sheet.source))}</p>'


def _ratios(ratios: Sequence[Ratio]) -> str:
    rows = [
        intervals.Interval(printable(words.subject_of(one)), one.spread, words.times(one.spread.median), one.spread.high < 1)
        for one in ratios
    ]
    return page.figure(
        "Ratios", "Dots are medians, lines go from the lowest to the highest round.", intervals.svg(rows, "ratios"), is_wide=True
    )


def _table(table: Table, note: str = "") -> str:
    header, rows = [printable(name) for name in table.header], [[printable(cell) for cell in row] for row in table.rows]
    return page.figure(table.title, note or table.note, page.table(header, rows, table.is_words), is_wide=True)
