"""The page of `slotpool soak --html`: verdicts, hit rate, memory and speed over time, and the table of phases of one soak.

Draws the document of `slotpool soak --json` and knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slotpool.errors import printable
from slotpool.report import page
from slotpool.report.chart import Chart, Line, nice_ticks, svg
from slotpool.sizes import format_bytes

_RATES = tuple((index / 5, f"{index / 5:.1f}") for index in range(6))
_MIB = 2**20
_MOST_POINTS = 500
_MOST_LINES = 6
"""Colours that the page's style has."""

Samples = Sequence[Mapping[str, Any]]


def render(document: Mapping[str, Any], name: str) -> str:
    """The whole page as text. `name` is shown as the model's."""
    verdict = "nothing found" if document["ok"] else "something is wrong"
    subtitle = f"{document['seconds'] / 60:.1f} minutes, {document['rounds']} rounds: {verdict}"
    drawn = [page.figure(one.title, one.note, svg(one)) for one in charts(document["samples"])]
    return page.page(
        f"Soak of {printable(name)}", subtitle, [page.tiles(_tiles(document)), page.figures([*drawn, _table(document["phases"])])]
    )


def charts(samples: Samples) -> list[Chart]:
    """The charts that there are samples for."""
    return [made for made in (_hit_rates(samples), _memory(samples), _speeds(samples)) if made is not None]


def _tiles(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    verdicts = document["verdicts"]
    anchors, speed = verdicts["anchors"], verdicts["speed"]
    ratio = f" ({speed['ratio']:.2f}x)" if speed["ratio"] else ""
    return [
        (f"anchors: {anchors['replays']} replays, {anchors['compared_with_plain']} of them known from plain llama.cpp", anchors["verdict"]),
        *(
            (f"memory, {name}: {format_bytes(int(max(0, one['growth'])))} grown", one["verdict"])
            for name, one in verdicts["memory"].items()
        ),
        (f"speed of the last third{ratio}", speed["verdict"]),
        ("lookups", str(verdicts["lookups"]["lookups"])),
        ("requests aborted", str(document["aborted"])),
    ]


def _hit_rates(samples: Samples) -> Chart | None:
    names = list(dict.fromkeys(one["phase"] for one in samples))
    wanted = [name for name in names if name.startswith(("churn", "chat", "parallel"))][: _MOST_LINES - 1]
    lines = [
        _line(name, number + 1, [one for one in samples if one["phase"] == name and _ran(one)], lambda one: one["hit_rate"])
        for number, name in enumerate(wanted)
    ]
    everything = [(one["seconds"] / 60, one["hit_rate"]) for one in samples if one["hit_rate"] is not None]
    if len(everything) < 2:
        return None
    smooth = Line("all", _thinned(_running(everything)), "s0")
    note = "Hits over lookups in each phase and the anchor behind it; all: the running mean over a round's length."
    return _over_time("Hit rate over time", note, "hit rate", (*[line for line in lines if len(line.points) > 1], smooth), samples, _RATES)


def _memory(samples: Samples) -> Chart | None:
    kinds: dict[str, Callable[[Mapping[str, Any]], float]] = {
        "resident": lambda one: one["rss_bytes"] / _MIB,
        "the process's own": lambda one: one["private_bytes"] / _MIB,
    }
    for name in list(dict.fromkeys(name for one in samples for name in one["device_bytes"]))[: _MOST_LINES - 2]:
        kinds[name] = lambda one, name=name: one["device_bytes"].get(name, 0) / _MIB  # type: ignore[misc]
    lines = tuple(_line(name, number, samples, of) for number, (name, of) in enumerate(kinds.items()))
    return _over_time("Memory over time", "After each phase, MiB.", "MiB", lines, samples)


def _speeds(samples: Samples) -> Chart | None:
    anchors = [one for one in samples if one["anchor_tps"]]
    names = [name for name in ("churn prose", "churn code") if any(one["phase"] == name for one in samples)]
    of_churn = [
        _line(name, number + 1, [one for one in samples if one["phase"] == name and _ran(one)], lambda one: one["generation_tps"])
        for number, name in enumerate(names)
    ]
    lines = (*of_churn, _line("anchors", 0, anchors, lambda one: one["anchor_tps"]))
    note = "Generation. The anchors are the same work every time; other work on the machine shows here as well."
    return _over_time("Speed over time", note, "tokens per second", lines, samples)


def _ran(one: Mapping[str, Any]) -> bool:
    return bool(one["generation_tps"]) and one["hit_rate"] is not None


def _over_time(
    title: str, note: str, y_name: str, lines: Sequence[Line], samples: Samples, y_ticks: tuple[tuple[float, str], ...] = ()
) -> Chart | None:
    values = [y for line in lines for _, y in line.points]
    if len(samples) < 2 or len(values) < 2:
        return None
    x_ticks = nice_ticks(0, samples[-1]["seconds"] / 60)
    return Chart(title, note, "minutes", y_name, tuple(lines), x_ticks, y_ticks or nice_ticks(0, max(values)))


def _line(name: str, number: int, samples: Samples, of: Callable[[Mapping[str, Any]], float]) -> Line:
    return Line(name, _thinned([(one["seconds"] / 60, of(one)) for one in samples]), f"s{number % _MOST_LINES}")


def _running(points: Sequence[tuple[float, float]], length: int = 9) -> list[tuple[float, float]]:
    """The mean of every stretch of `length` values, at its end."""
    stretches = ((points[end][0], points[max(0, end - length + 1) : end + 1]) for end in range(len(points)))
    return [(x, sum(y for _, y in stretch) / len(stretch)) for x, stretch in stretches]


def _thinned(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    step = -(-len(points) // _MOST_POINTS) or 1
    return tuple(points[::step])


def _table(phases: Sequence[Mapping[str, Any]]) -> str:
    header = (
        "phase",
        "times",
        "differences",
        "prompt tokens/s",
        "tokens/s",
        "anchor tokens/s",
        "hit rate",
        "lookups",
        "copied",
        "evicted",
        "own memory, most",
    )
    return page.figure(
        "Phases",
        "Medians of speeds; counters are sums, with the anchor behind each phase.",
        page.table(header, [phase_row(one) for one in phases]),
        is_wide=True,
    )


def phase_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a phase, in the order of the page's table and the command's."""
    speeds = (_number(one[name], "{:.1f}") for name in ("prompt_tps", "generation_tps", "anchor_tps"))
    memory = "" if one["private_bytes"] is None else format_bytes(one["private_bytes"])
    counts = (str(one["lookups"]), format_bytes(one["bytes_copied"]), str(one["evicted"]))
    return (one["phase"], str(one["times"]), str(one["differences"]), *speeds, _number(one["hit_rate"], "{:.1%}"), *counts, memory)


def _number(value: float | None, pattern: str) -> str:
    return "" if value is None else pattern.format(value)
