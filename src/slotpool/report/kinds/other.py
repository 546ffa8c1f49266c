"""Records of kinds that this version does not know: every spread of samples in them, by its place. Understands none of it."""

from __future__ import annotations

from collections.abc import Iterator

from slotpool.report.facts import NEITHER, Content, Figure
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind
from slotpool.report.tables import figures_table

_MOST = 200
_DEEPEST = 12


def content(results: Field, flags: Field) -> Content:
    """Everything with median, low and high, in the record's order."""
    found: list[Figure] = []
    for place, spread in _spreads(results, "", _DEEPEST):
        if len(found) == _MOST:
            break
        found.append(Figure("", place, "", spread.spread(), better=NEITHER))
    return Content(tuple(found), tables=(figures_table(found, "Samples found in it"),) if found else ())


def _spreads(field: Field, place: str, depth: int) -> Iterator[tuple[str, Field]]:
    if field.is_spread:
        yield place, field
    elif depth and isinstance(field.value, dict):
        for name, value in field.items():
            yield from _spreads(value, f"{place}.{name}".lstrip("."), depth - 1)
    elif depth and field.is_list:
        for index, value in enumerate(field.each()):
            yield from _spreads(value, f"{place}[{index}]", depth - 1)


KIND = Kind(
    "Records of another kind",
    "This version knows no tables for them: shown is every spread of samples that is in them.",
    content,
    apart=None,
)
