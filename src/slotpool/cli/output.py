"""What verbs print with: lines, tables and JSON on stdout, notes on stderr.

Does not decide what is printed. Everything that came from a file or the user goes through `printable` first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotpool.errors import printable

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
"""The option that every verb with a table takes, given to the verb as `as_json`."""


def print_line(text: str = "") -> None:
    """One line on stdout."""
    print(printable(text))


def print_note(text: str) -> None:
    """One line on stderr: progress, hints, anything that is not a result."""
    print(printable(text), file=sys.stderr)


def print_json(document: Any) -> None:
    """`document` on stdout, in ASCII: any path or name survives any terminal and pipe. NaN and infinities are refused."""
    print(json.dumps(document, indent=2, allow_nan=False))


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values under each other, the values in one column."""
    rows = list(pairs)
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print_line(f"{name:<{width}}  {value}")


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table on stdout. Columns named in `right` are aligned right, for numbers.

    In a terminal it may have colours and folds what is too long; in a pipe it is plain and as wide as it needs to be. No cell
    is ever cut.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(header, cells, right)
    else:
        _print_plain(header, cells, right)


def _print_rich(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in header:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def _print_plain(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    print("\n".join(table_lines(header, rows, right=right)))


def table_lines(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """The table as plain lines, as wide as it needs to be. Cells are printable already."""
    cells = [list(row) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(header, *cells, strict=True)]
    return [_plain_line(header, row, widths, right) for row in [header, ["-" * width for width in widths], *cells]]


def _plain_line(header: Sequence[str], row: Sequence[str], widths: Sequence[int], right: Sequence[str]) -> str:
    padded = (" " * (width - cell_len(cell)) for width, cell in zip(widths, row, strict=True))
    aligned = (pad + cell if title in right else cell + pad for title, pad, cell in zip(header, padded, row, strict=True))
    return "  ".join(aligned).rstrip()
