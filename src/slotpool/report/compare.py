"""Two sets of records against each other: figure by figure where kind, model, machine and flags are the same. Renders nothing.

What was measured at two times differs by the machine's mood as well: an interval knows the spread of its samples and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slotpool.report import judge
from slotpool.report.facts import LOWER, NEITHER, Figure, Sheet, Source, Spread
from slotpool.report.sheets import UNIMPORTANT, key, newest

PARTS = ("machine", "model", "flags")
"""What may be ignored when records are matched."""
TOO_FEW, EQUAL, CHANGED = "too few samples to say", "equal", "changed"


@dataclass(frozen=True)
class Pair:
    """One figure in both sets. `ratio`: after over before with its interval at 95 %, low and high equal where none can be given."""

    before: Figure
    after: Figure
    sources: tuple[Source, Source]
    ratio: Spread | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """`pairs` in the order of the first set; what stands in one set alone, as (source, figures)."""

    pairs: tuple[Pair, ...]
    only_before: tuple[tuple[Source, tuple[Figure, ...]], ...]
    only_after: tuple[tuple[Source, tuple[Figure, ...]], ...]


def compare(before: Sequence[Sheet], after: Sequence[Sheet], ignored: Sequence[str] = ()) -> Comparison:
    """The newest records of both sets, matched by all that is not `ignored`."""
    first, second = _figures(before, ignored), _figures(after, ignored)
    pairs = tuple(_pair(*first[name], *second[name]) for name in first if name in second)
    return Comparison(pairs, _alone(first, second), _alone(second, first))


_Named = dict[str, tuple[Source, Figure]]


def _figures(sheets: Sequence[Sheet], ignored: Sequence[str]) -> _Named:
    found: _Named = {}
    for sheet in newest(sheets):
        flags = {name: value for name, value in sheet.source.flags.items() if name not in UNIMPORTANT}
        for figure in sheet.content.figures:
            found["\n".join((key(sheet, flags, ignored), figure.workload, figure.arm, figure.what))] = (sheet.source, figure)
    return found


def _alone(these: _Named, others: _Named) -> tuple[tuple[Source, tuple[Figure, ...]], ...]:
    found: dict[tuple[str, int], tuple[Source, list[Figure]]] = {}
    for name, (source, figure) in these.items():
        if name not in others:
            found.setdefault((source.file, source.line), (source, []))[1].append(figure)
    return tuple((source, tuple(figures)) for source, figures in found.values())


def _pair(source: Source, before: Figure, other: Source, after: Figure) -> Pair:
    if before.is_counted:
        verdict = EQUAL if before.spread == after.spread else CHANGED
        return Pair(before, after, (source, other), _plain_ratio(before, after), verdict)
    found = judge.shift(before.spread.samples, after.spread.samples)
    verdict = TOO_FEW if found is None else _verdict(found, before.better)
    return Pair(before, after, (source, other), found or _plain_ratio(before, after), verdict)


def _plain_ratio(before: Figure, after: Figure) -> Spread | None:
    if before.spread.median <= 0:
        return None
    ratio = after.spread.median / before.spread.median
    return Spread(ratio, ratio, ratio)


def _verdict(ratio: Spread, better: str) -> str:
    if ratio.low <= 1 <= ratio.high:
        return judge.SAME
    is_up = ratio.low > 1
    if better == NEITHER:
        return "higher" if is_up else "lower"
    return judge.BETTER if is_up != (better == LOWER) else judge.WORSE
