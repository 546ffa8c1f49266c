"""Numbers as people read them: as many digits as say something, a unit where it belongs.

Decides nothing about what is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from slotpool.report.facts import Figure, Headline, Ratio, Spread
from slotpool.sizes import format_bytes


def number(value: float) -> str:
    """About three digits."""
    size = abs(value)
    if 1e6 <= size < 1e12:
        return f"{value / 1e6:.1f} million"
    if size >= 100 or value == int(value):
        return f"{value:.0f}" if size < 1e15 else f"{value:.3g}"
    if size >= 0.001:
        return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"
    return f"{value:.2g}"


def measured(value: float, unit: str) -> str:
    """A value in its unit: bytes in the largest that fits, shares in per cent."""
    if unit == "bytes":
        return format_bytes(round(value))
    return f"{value:.1%}" if unit == "share" else number(value)


def between(spread: Spread, unit: str = "") -> str:
    """Lowest to highest, and of how many; nothing where there is one number alone."""
    if spread.low == spread.high and spread.n < 2:
        return ""
    return f"{measured(spread.low, unit)} to {measured(spread.high, unit)}"


def times(value: float) -> str:
    """A ratio; one that few samples leave open to anything is not written out."""
    if not 0.001 <= value < 1000:
        return "over 1000x" if value >= 1000 else f"{value:g}x" if value <= 0 else "under 0.001x"
    return f"{value:.1f}x" if value >= 9.95 else f"{value:.2f}x" if value >= 1.995 else f"{value:.3f}x"


def times_between(spread: Spread) -> str:
    """Lowest to highest ratio."""
    return "" if spread.low == spread.high and spread.n < 2 else f"{times(spread.low)} to {times(spread.high)}"


def samples(spread: Spread) -> str:
    """How many samples, where it is known."""
    return str(spread.n) if spread.n else ""


def name_of(figure: Figure) -> str:
    """What was measured, with its unit."""
    return f"{figure.what}, {figure.unit}" if figure.unit not in ("", "bytes", "share") else figure.what


def subject_of(ratio: Ratio) -> str:
    """A ratio in words: on what, of what, which arms."""
    head = ", ".join(part for part in (ratio.workload, ratio.what) if part)
    return f"{head}: {ratio.arm} against {ratio.against}"


def figure_in_words(figure: Figure) -> str:
    """A figure's workload, arm and quantity."""
    return ", ".join(part for part in (figure.workload, figure.arm, name_of(figure)) if part)


def headline(ratio: Ratio, what: str) -> Headline:
    """A ratio as a row of the short table, with what it is against and its verdict."""
    said = ", ".join(part for part in (times_between(ratio.spread), ratio.verdict) if part)
    where = f" ({ratio.workload})" if ratio.workload else ""
    return Headline(f"{what}, against {ratio.against}{where}", times(ratio.spread.median), said)


def range_of(values: Sequence[float]) -> str:
    """Lowest to highest ratio of some."""
    return f"{times(min(values))} to {times(max(values))}" if values else ""
