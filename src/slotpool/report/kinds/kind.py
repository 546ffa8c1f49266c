"""What a report must know of one kind of record: how it is called, what it is about, and how to read its results.

Each kind is one room beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slotpool.report import judge
from slotpool.report.facts import Content, Ratio, Spread
from slotpool.report.fields import Field


@dataclass(frozen=True)
class Kind:
    """`content` reads results and flags. `apart` are the flags by which records are series of their own, None for all of them."""

    title: str
    about: str
    content: Callable[[Field, Field], Content]
    apart: tuple[str, ...] | None = ()


def paired(arm: str, against: str, what: str, spread: Spread, workload: str = "") -> Ratio:
    """A ratio of rounds in which both arms ran, judged by its samples."""
    return Ratio(arm, against, what, spread, workload, judge.paired(spread.samples))
