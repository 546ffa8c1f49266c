"""Line charts as inline SVG: what is drawn is a `Chart`, plain data; `svg` turns it into text. Colours come from the page's style.

Draws lines over two axes and nothing else (`trace_page` has the heat map).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean

WIDTH, HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 108, 14, 44
_LABEL_HEIGHT = 15

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Line:
    """A curve. `kind` is a class of the page's style: `s0` to `s5`, `thin` for one of many (without a label), `even` for a reference."""

    name: str
    points: Points
    kind: str
    has_marks: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves over two axes. Ticks are (value, text); with `is_log` the x axis is logarithmic and all x are above 0."""

    title: str
    note: str
    x_name: str
    y_name: str
    lines: tuple[Line, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    is_log: bool = False
    marks: tuple[tuple[float, str], ...] = ()  # x of vertical lines, and what they are


def nice_ticks(low: float, high: float, count: int = 5) -> tuple[tuple[float, str], ...]:
    """About `count` round values that enclose low to high, with their text."""
    span = (high - low) or 1.0
    raw = span / max(1, count)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple((index * step, f"{index * step:g}") for index in range(first, last + 1))


def svg(chart: Chart) -> str:
    """The chart as an SVG element."""
    plane = _Plane(chart)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">']
    parts += [_y_tick(plane, value, text) for value, text in chart.y_ticks]
    parts += [_x_tick(plane, value, text) for value, text in chart.x_ticks]
    parts.append(
        f'<text class="axis" x="{(_LEFT + WIDTH - _RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(chart.x_name)}</text>'
    )
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    turn = f'transform="rotate(-90 12 {middle:.0f})"'
    parts.append(f'<text class="axis" x="12" y="{middle:.0f}" text-anchor="middle" {turn}>{escape(chart.y_name)}</text>')
    parts += [_mark(plane, x, text) for x, text in chart.marks]
    parts += [_line(plane, line) for line in chart.lines if len(line.points)]
    parts += _labels(plane, chart.lines)
    return "".join([*parts, "</svg>"])


class _Plane:
    """From values to places on the paper."""

    def __init__(self, chart: Chart) -> None:
        self._is_log = chart.is_log
        xs = [self._scaled(x) for x, _ in chart.x_ticks]
        ys = [y for y, _ in chart.y_ticks]
        self._x, self._y = (min(xs), max(xs)), (min(ys), max(ys))

    def _scaled(self, x: float) -> float:
        return math.log(x) if self._is_log else x

    def x(self, value: float) -> float:
        low, high = self._x
        return _LEFT + (self._scaled(value) - low) / ((high - low) or 1) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y
        return HEIGHT - _BOTTOM - (value - low) / ((high - low) or 1) * (HEIGHT - _TOP - _BOTTOM)


def _y_tick(plane: _Plane, value: float, text: str) -> str:
    y = plane.y(value)
    line = f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + f'<text class="tick" x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'


def _x_tick(plane: _Plane, value: float, text: str) -> str:
    x, foot = plane.x(value), HEIGHT - _BOTTOM
    line = f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{foot}" y2="{foot + 4}"/>'
    return line + f'<text class="tick" x="{x:.1f}" y="{foot + 17}" text-anchor="middle">{escape(text)}</text>'


def _mark(plane: _Plane, value: float, text: str) -> str:
    x = plane.x(value)
    line = f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
    return line + f'<text class="tick" x="{x + 4:.1f}" y="{HEIGHT - _BOTTOM - 6}">{escape(text)}</text>'


def _line(plane: _Plane, line: Line) -> str:
    places = " ".join(f"{plane.x(x):.1f},{plane.y(y):.1f}" for x, y in line.points)
    drawn = f'<polyline class="line {line.kind}" points="{places}"><title>{escape(line.name)}</title></polyline>'
    if not line.has_marks:
        return drawn
    dots = [
        f'<circle class="dot {line.kind}" cx="{plane.x(x):.1f}" cy="{plane.y(y):.1f}" r="3.5">'
        f"<title>{escape(line.name)}: {y:.3f} at {x:g}</title></circle>"
        for x, y in line.points
    ]
    return drawn + "".join(dots)


def _labels(plane: _Plane, lines: Sequence[Line]) -> list[str]:
    """Names at the right ends of the lines, moved apart where they would overlap; of lines that end alike, the higher one's first."""
    named = sorted(
        (line for line in lines if line.points and line.kind != "thin"), key=lambda line: (plane.y(line.points[-1][1]), -_height(line))
    )
    places: list[float] = []
    for line in named:
        wanted = plane.y(line.points[-1][1]) + 4
        places.append(max(wanted, places[-1] + _LABEL_HEIGHT) if places else wanted)
    surplus = max(0.0, places[-1] - (HEIGHT - _BOTTOM + 4)) if places else 0.0
    return [
        f'<text class="label {line.kind}" x="{WIDTH - _RIGHT + 8}" y="{place - surplus:.1f}">{escape(line.name)}</text>'
        for line, place in zip(named, places, strict=True)
    ]


def _height(line: Line) -> float:
    return fmean(y for _, y in line.points)
