"""Reads values out of a record's JSON: a wrong one is an error that names file, line and field.

Knows no kind of record. Values come from outside: numbers are finite, lists and texts have bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from slotpool.errors import SlotpoolError, quoted
from slotpool.report.facts import Spread, spread_of

MOST_ITEMS = 100_000
"""Of a list or an object."""
MOST_TEXT = 500
"""Characters of a text that is shown."""


class Field:
    """A value somewhere in a record, and where that is."""

    def __init__(self, value: Any, place: str, name: str = "") -> None:
        self.value = value
        self.place = place
        self.name = name

    def __getitem__(self, name: str) -> Field:
        """The member `name`; an error when there is none."""
        found = self._object().get(name, _MISSING)
        child = Field(found, self.place, f"{self.name}.{name}" if self.name else name)
        return child if found is not _MISSING else child._fail("a value")

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def items(self) -> Iterator[tuple[str, Field]]:
        """Members of an object, by name."""
        for name, value in self._object().items():
            yield name[:MOST_TEXT], Field(value, self.place, f"{self.name}.{quoted(name)}")

    def each(self) -> list[Field]:
        """Items of a list."""
        if not isinstance(self.value, list) or len(self.value) > MOST_ITEMS:
            self._fail(f"a list of at most {MOST_ITEMS} items")
        return [Field(value, self.place, f"{self.name}[{index}]") for index, value in enumerate(self.value)]

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self._fail("a number")
        if abs(self.value) > 1e300 or not math.isfinite(self.value):
            self._fail("a finite number")
        return float(self.value)

    def count(self) -> int:
        """A whole number."""
        return int(self.number())

    def text(self) -> str:
        """A text, cut where it is too long to be shown."""
        if not isinstance(self.value, str):
            self._fail("a text")
        return str(self.value[:MOST_TEXT])

    def spread(self) -> Spread:
        """{median, low, high} with or without `samples`, a list of samples, or a number."""
        if isinstance(self.value, dict):
            return self._stated()
        return spread_of([one.number() for one in self.each()] or [self._fail("samples").number()]) if self.is_list else self._single()

    @property
    def is_list(self) -> bool:
        """Whether there is a list."""
        return isinstance(self.value, list)

    @property
    def is_spread(self) -> bool:
        """Whether this looks like a spread of samples."""
        return isinstance(self.value, dict) and {"median", "low", "high"} <= self.value.keys()

    def _stated(self) -> Spread:
        samples = tuple(one.number() for one in self["samples"].each()) if "samples" in self else ()
        low, middle, high = (self[name].number() for name in ("low", "median", "high"))
        if not low <= middle <= high:
            self._fail("low <= median <= high")
        return Spread(middle, low, high, samples)

    def _single(self) -> Spread:
        value = self.number()
        return Spread(value, value, value)

    def _object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict) or len(self.value) > MOST_ITEMS:
            self._fail("an object")
        return dict(self.value)

    def _fail(self, expected: str) -> Field:
        found = "nothing" if self.value is _MISSING else f'"{quoted(str(self.value)[:MOST_TEXT])}"'
        raise SlotpoolError(f"expected {expected}, found {found}", where=f"{self.place}, field {self.name}")


_MISSING = object()
