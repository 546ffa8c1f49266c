"""What a report shows, as plain data: figures with their spread, ratios, tables, and the sheet of one record.

Reads no record and renders nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from slotpool.report.chart import Chart

HIGHER, LOWER, NEITHER = "higher", "lower", ""
"""What is better."""


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest; `samples` are all of them, empty where the record has no more than these three."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...] = ()

    @property
    def n(self) -> int:
        """How many samples are known."""
        return len(self.samples)


@dataclass(frozen=True)
class Figure:
    """One quantity of one arm. `is_counted`: a count that every run on this input gives alike, so that any change is a change."""

    arm: str
    what: str
    unit: str
    spread: Spread
    workload: str = ""
    better: str = HIGHER
    is_counted: bool = False


@dataclass(frozen=True)
class Ratio:
    """How much better `arm` is than `against` in `what`, above 1 is better. `low`, `high` of its spread as `verdict` understands them."""

    arm: str
    against: str
    what: str
    spread: Spread
    workload: str = ""
    verdict: str = ""
    is_counted: bool = False
    is_ours: bool = True

    @property
    def is_loss(self) -> bool:
        """Whether slotpool is behind in the median; a plain arm against another is nobody's loss."""
        return self.is_ours and self.spread.median < 1


_WORDS = frozenset({"verdict", "plan said", "best", "command", "machine", "failed"})
"""Columns of words behind those of numbers."""


@dataclass(frozen=True)
class Table:
    """Text cells under a header; the first `n_text` columns are words, the others numbers, but for a few that are known as words."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    n_text: int = 1

    @property
    def is_words(self) -> tuple[bool, ...]:
        """Of every column, whether words stand in it."""
        return tuple(index < self.n_text or name in _WORDS for index, name in enumerate(self.header))


@dataclass(frozen=True)
class Headline:
    """A row of a short table: what, the value and its spread in words."""

    what: str
    value: str
    spread: str = ""


@dataclass(frozen=True)
class Content:
    """What a kind of record has to say: numbers for comparing, and how they are shown. `headlines` are for the shortest of tables."""

    figures: tuple[Figure, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()
    headlines: tuple[Headline, ...] = ()


@dataclass(frozen=True)
class Source:
    """Where everything on a sheet comes from: the record's file and line, when and on what it was made."""

    file: str
    line: int
    kind: str
    date: str
    commit: str | None
    has_changes: bool
    slotpool: str
    engine: str
    machine: str
    devices: tuple[str, ...]
    load: float | None
    model: str
    model_id: str
    flags: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sheet:
    """One record, read: its source, what it is about, and its content."""

    source: Source
    title: str
    about: str
    content: Content


def spread_of(samples: Sequence[float]) -> Spread:
    """The spread of one or more samples."""
    return Spread(median(samples), min(samples), max(samples), tuple(samples))
