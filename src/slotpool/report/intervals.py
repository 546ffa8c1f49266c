"""Ratios as dots with their spread on one axis around 1, as inline SVG.

Draws nothing else; colours come from the page's style.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from slotpool.report.facts import Spread

WIDTH, ROW, TOP, FOOT = 1080, 22, 8, 44
_LEFT, _RIGHT = 12, 76
_WIDEST = 3.0
"""Ratio of ends beyond which the axis is logarithmic."""


@dataclass(frozen=True)
class Interval:
    """One row: a name, the spread, the value in words, and whether that is bad news."""

    name: str
    spread: Spread
    text: str
    is_bad: bool = False


def svg(rows: Sequence[Interval], title: str, name: str = "ratio, above 1 is better") -> str:
    """The rows under each other, each name above its line, and 1 as a dashed line. `name` is the axis's."""
    axis, height = _Axis(rows), TOP + 2 * ROW * len(rows) + FOOT
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    parts += [_tick(axis.x(value), text, height) for value, text in axis.ticks()]
    one = axis.x(1.0)
    parts.append(f'<line class="mark" x1="{one:.1f}" x2="{one:.1f}" y1="{TOP}" y2="{height - FOOT}"/>')
    parts += [_row(axis, row, TOP + 2 * ROW * index) for index, row in enumerate(rows)]
    parts.append(f'<text class="axis" x="{(_LEFT + WIDTH - _RIGHT) / 2:.0f}" y="{height - 6}" text-anchor="middle">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])


class _Axis:
    """From ratios to places."""

    def __init__(self, rows: Sequence[Interval]) -> None:
        low, high = min([0.95, *(row.spread.low for row in rows)]), max([1.05, *(row.spread.high for row in rows)])
        self.is_log = low > 0 and high / low > _WIDEST
        margin = 0.0 if self.is_log else 0.04 * (high - low)
        self.low, self.high = low - margin, high + margin

    def x(self, value: float) -> float:
        low, high, at = (math.log(one) for one in (self.low, self.high, value)) if self.is_log else (self.low, self.high, value)
        return _LEFT + (at - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[tuple[float, str]]:
        """A handful of round values inside the axis."""
        if self.is_log:
            values = [factor * 10.0**power for power in range(-3, 7) for factor in (1, 2, 5)]
        else:
            raw = (self.high - self.low) / 5
            magnitude = 10.0 ** math.floor(math.log10(raw))
            step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw * 0.999)
            values = [step * index for index in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [(value, f"{value:g}") for value in values if self.low <= value <= self.high]


def _tick(x: float, text: str, height: int) -> str:
    line = f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - FOOT}"/>'
    return line + f'<text class="tick" x="{x:.1f}" y="{height - FOOT + 16}" text-anchor="middle">{escape(text)}</text>'


def _row(axis: _Axis, row: Interval, top: int) -> str:
    y, kind = top + 1.5 * ROW, "s1" if row.is_bad else "s0"
    low, middle, high = (axis.x(value) for value in (row.spread.low, row.spread.median, row.spread.high))
    name = f'<text class="tick" x="{_LEFT}" y="{top + 0.8 * ROW:.1f}">{escape(row.name)}</text>'
    line = f'<line class="line {kind}" x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    dot = f'<circle class="dot {kind}" cx="{middle:.1f}" cy="{y:.1f}" r="4.5"/>'
    return name + line + dot + f'<text class="label {kind}" x="{WIDTH - _RIGHT + 10}" y="{y + 4:.1f}">{escape(row.text)}</text>'
