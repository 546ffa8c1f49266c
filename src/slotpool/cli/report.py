"""`slotpool report`: records as tables, Markdown, JSON or a page, and two sets of them against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from slotpool.cli.output import json_option, print_json, print_line, print_note, print_table
from slotpool.cli.parameters import OneOf
from slotpool.errors import SlotpoolError, printable
from slotpool.report import compare as comparing
from slotpool.report import document, markdown, pairs, sheets
from slotpool.report.facts import Sheet, Table
from slotpool.report.losses import losses
from slotpool.speeds.cache import cache_path
from slotpool.trace.writer import already_there

_MOST_NAMED = 20
"""Damaged records."""


@click.command("report")
@click.argument("paths", type=click.Path(path_type=Path), metavar="[RECORDS...]", nargs=-1)
@click.option("--compare", "others", type=click.Path(path_type=Path), metavar="OTHER", multiple=True, help="Compare with these records.")
@click.option(
    "--ignore", "ignored", type=OneOf("part", comparing.PARTS), multiple=True, help="With --compare: match records that differ in this."
)
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Show records of this kind only: bench, drift, soak or a benchmark.")
@click.option("--all", "is_all", is_flag=True, help="Show older records too, not only the newest of each series.")
@click.option("--salvage", is_flag=True, help="Of damaged files, show the records that are whole; the others are named.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Write a page with plots, one file that needs no other.")
@click.option("--force", is_flag=True, help="Overwrite the page.")
@json_option
def command(
    paths: tuple[Path, ...],
    others: tuple[Path, ...],
    ignored: tuple[str, ...],
    kinds: tuple[str, ...],
    is_all: bool,
    salvage: bool,
    as_markdown: bool,
    page: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show what RECORDS, files written by bench, drift, soak and the benchmarks, say; without any, what bench keeps in your cache.

    Nothing is measured, and nothing shown that is not in a record; every table has its record's date, commit and machine under it. Of
    records of one series (kind, machine, model, flags that matter) the newest counts. With --compare, RECORDS are before and OTHER after:
    figures that are in both sets, with what the samples of both allow to be said, and what is in one of them alone.
    """
    _check(page, force, as_markdown=as_markdown, as_json=as_json, has_others=bool(others), ignored=ignored)
    before = _read(paths or (_kept(),), kinds, salvage)
    if others:
        _show_comparison(comparing.compare(before, _read(others, kinds, salvage), ignored), page, as_markdown, as_json)
    else:
        shown = before if is_all else sheets.newest(before)
        _show(shown, len(before) - len(shown), page, as_markdown, as_json)


def _kept() -> Path:
    """Where bench adds records when it is told no other file."""
    path = cache_path("").with_name("records.jsonl")
    if not path.exists():
        raise SlotpoolError(
            "expected RECORDS, found none, and none in your cache", where="slotpool report", do="slotpool bench makes some."
        )
    return path


def _check(page: Path | None, force: bool, *, as_markdown: bool, as_json: bool, has_others: bool, ignored: Sequence[str]) -> None:
    if as_markdown and as_json:
        raise SlotpoolError("expected --markdown or --json, found both", where="slotpool report")
    if ignored and not has_others:
        raise SlotpoolError("expected --compare with --ignore, found none", where="slotpool report --ignore")
    if page is not None and page.exists() and not force:
        raise already_there(page)


def _read(paths: Sequence[Path], kinds: Sequence[str], salvage: bool) -> list[Sheet]:
    damaged: list[SlotpoolError] = []
    found = sheets.read(paths, damaged=damaged if salvage else None)
    for error in damaged[:_MOST_NAMED]:
        print_note(f"slotpool: passed over: {error}")
    if damaged[_MOST_NAMED:]:
        print_note(f"slotpool: {len(damaged) - _MOST_NAMED} more records passed over")
    there = sorted({sheet.source.kind for sheet in found})
    for kind in kinds:
        if kind not in there:
            raise sheets.no_such_kind(kind, there)
    return [sheet for sheet in found if not kinds or sheet.source.kind in kinds]


def _show(shown: Sequence[Sheet], n_older: int, page: Path | None, as_markdown: bool, as_json: bool) -> None:
    if page is not None:
        from slotpool.report.records_page import render

        _write(page, render(shown, n_older))
    if as_json:
        print_json(document.document(shown, n_older))
    elif as_markdown:
        print(markdown.document(shown))
    else:
        _print(shown, n_older)


def _show_comparison(found: comparing.Comparison, page: Path | None, as_markdown: bool, as_json: bool) -> None:
    if page is not None:
        from slotpool.report.records_page import render_comparison

        _write(page, render_comparison(found))
    if as_json:
        print_json(document.comparison(found))
    elif as_markdown:
        print(pairs.comparison_markdown(found))
    else:
        _print_comparison(found)


def _write(page: Path, text: str) -> None:
    page.write_text(text, "utf-8")
    print_note(f"slotpool: wrote {printable(page)}")


def _print(shown: Sequence[Sheet], n_older: int) -> None:
    for sheet in shown:
        print_line(sheet.title)
        for table in sheet.content.tables:
            print_line()
            _print_table(table)
        for note in sheet.content.notes:
            print_line(note)
        print_line(f"record: {sheets.origin(sheet.source)}")
        print_line()
    _print_losses(shown)
    if n_older:
        print_note(f"slotpool: {n_older} older records of the same series are left out; --all shows them")


def _print_losses(shown: Sequence[Sheet]) -> None:
    found = losses(shown)
    if found.table.rows:
        _print_table(found.table)
        for text in found.left_out:
            print_line(text)


def _print_comparison(found: comparing.Comparison) -> None:
    tables = (
        pairs.pairs_table(found),
        pairs.alone_table("Only before", found.only_before),
        pairs.alone_table("Only after", found.only_after),
    )
    for table in tables:
        if table.rows:
            _print_table(table)
            print_line()
    if not found.pairs:
        print_note("slotpool: no figure is in both sets; --ignore machine, model or flags matches more")
    for text in dict.fromkeys(sheets.origin(source) for pair in found.pairs for source in pair.sources):
        print_line(f"record: {text}")


def _print_table(table: Table) -> None:
    print_line(table.title)
    print_table(table.header, table.rows, right=[name for name, is_words in zip(table.header, table.is_words, strict=True) if not is_words])
    if table.note:
        print_line(table.note)
