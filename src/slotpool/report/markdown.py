"""Sheets and comparisons as Markdown. Decides nothing about what is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slotpool.errors import printable
from slotpool.report.facts import Sheet, Table
from slotpool.report.sheets import origin

LONG = 24
"""Rows beyond which a table is folded."""
_OUTER_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Those that could make text slanted; inside a word they cannot."""
_ESCAPED = {"<": "&lt;", ">": "&gt;"}


def document(sheets: Sequence[Sheet]) -> str:
    """All sheets under each other."""
    return "\n".join(line for sheet in sheets for line in sheet_lines(sheet))


def sheet_lines(sheet: Sheet) -> list[str]:
    """A heading, what it is about, the tables, where they come from."""
    lines = [f"## {text(sheet.title)}", "", text(sheet.about), ""]
    for table in sheet.content.tables:
        lines += table_lines(table)
    lines += [text(note) + "\n" for note in sheet.content.notes]
    return [*lines, f"Record: {text(origin(sheet.source))}.", ""]


def table_lines(table: Table) -> list[str]:
    """The table with its title and note; long ones are folded."""
    rows = row_lines(table)
    note = [text(table.note), ""] if table.note else []
    if len(table.rows) <= LONG:
        return [f"**{text(table.title)}**", "", *rows, "", *note]
    head = f"<details><summary>{text(table.title)}, {len(table.rows)} rows</summary>"
    return [head, "", *rows, "", "</details>", "", *note]


def row_lines(table: Table) -> list[str]:
    """The table alone, however long it is."""
    marks = ["---" if is_words else "---:" for is_words in table.is_words]
    return [_line(row) for row in (table.header, marks, *table.rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(text(cell) for cell in cells)} |"


def text(value: str) -> str:
    """`value` as one line that Markdown takes as text."""
    safe = printable(value).replace("\\", "\\\\")
    for mark in "|<>`*[]":
        safe = safe.replace(mark, _ESCAPED.get(mark, f"\\{mark}"))
    return _OUTER_UNDERSCORE.sub(r"\_", safe)
