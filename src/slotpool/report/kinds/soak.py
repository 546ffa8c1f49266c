"""Records of `slotpool soak`: a long session with anchors. Reads them, judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slotpool.report import words
from slotpool.report.chart import Chart, Line, nice_ticks
from slotpool.report.facts import NEITHER, Content, Figure, Headline, Ratio, Spread, Table
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind
from slotpool.report.tables import ratios_table

_MOST_POINTS = 400
_PHASE = (
    ("prompt_tps", "prompt", "tokens/s"),
    ("generation_tps", "generation", "tokens/s"),
    ("anchor_tps", "anchor", "tokens/s"),
    ("hit_rate", "hit rate", "share"),
    ("private_bytes", "own memory", "bytes"),
)


def content(results: Field, flags: Field) -> Content:
    """Verdicts as they were given, phases, and hit rate, speed and memory over time."""
    phases = results["phases"].each()
    figures = tuple(figure for phase in phases for figure in _figures(phase))
    ratios = tuple(_pace(results["verdicts"]["speed"]))
    samples = results["samples"].each()
    charts = tuple(chart for chart in (_hits(samples), _speed(samples), _memory(samples)) if chart)
    tables = (_verdicts(results), _phases(phases), *([ratios_table(ratios)] if ratios else []))
    return Content(figures, ratios, tables, charts, tuple(_notes(results)), (_headline(results),))


def _figures(phase: Field) -> Iterator[Figure]:
    for key, what, unit in _PHASE:
        if key in phase:
            yield Figure("pool", what, unit, phase[key].spread(), phase["phase"].text(), NEITHER if unit == "bytes" else "higher")


def _pace(speed: Field) -> Iterator[Ratio]:
    if "ratio" in speed:
        middle, low, high = (speed[name].number() for name in ("ratio", "low", "high"))
        spread = Spread(middle, min(low, middle), max(high, middle))
        said = f"{speed['verdict'].text()} (99 % interval)"
        yield Ratio("last third of the session", "its first third", "speed of the anchors", spread, verdict=said)


def _verdicts(results: Field) -> Table:
    found = results["verdicts"]
    anchors = found["anchors"]
    n_differ, n_all, n_plain = (anchors[name].count() for name in ("differences", "replays", "compared_with_plain"))
    seen = f"{n_differ} of {n_all} replays differ, {n_plain} anchors compared with plain"
    rows = [("anchors", anchors["verdict"].text(), seen)]
    rows.append(("lookups", found["lookups"]["verdict"].text(), str(found["lookups"]["lookups"].count())))
    for name, trend in found["memory"].items():
        grown = words.measured(trend["growth"].number(), "bytes")
        rows.append((f"memory, {name}", trend["verdict"].text(), f"{grown} over {trend['rounds'].count()} rounds"))
    rows.append(("speed", found["speed"]["verdict"].text(), f"{found['speed']['rounds'].count()} rounds"))
    return Table("Verdicts", ("of", "verdict", "seen"), tuple(rows), n_text=3)


def _phases(phases: Sequence[Field]) -> Table:
    header = ("phase", "times", *(f"{what}, {unit}" if unit == "tokens/s" else what for _, what, unit in _PHASE))
    return Table("Phases, medians", header, tuple(_phase(phase) for phase in phases))


def _phase(phase: Field) -> tuple[str, ...]:
    cells = (words.measured(phase[key].number(), unit) if key in phase else "" for key, _, unit in _PHASE)
    return (phase["phase"].text(), str(phase["times"].count()), *cells)


def _notes(results: Field) -> Iterator[str]:
    minutes = results["seconds"].number() / 60
    yield f"{minutes:.0f} minutes, {results['rounds'].count()} rounds, {results['aborted'].count()} requests aborted."
    if results["failure"].value:
        yield f"Ended early: {results['failure'].text()}"


def _headline(results: Field) -> Headline:
    anchors, hours = results["verdicts"]["anchors"], results["seconds"].number() / 3600
    memory = {trend["verdict"].text() for _, trend in results["verdicts"]["memory"].items()}
    said = f"memory {' and '.join(sorted(memory))}, speed: {results['verdicts']['speed']['verdict'].text()}"
    what = f"soak of {hours:.1f} hours: anchors that differ, of {anchors['replays'].count()} replays"
    return Headline(what, str(anchors["differences"].count()), said)


# ---- over time ----


def _hits(samples: Sequence[Field]) -> Chart | None:
    points = _points(samples, lambda one: one["hit_rate"].number() if "hit_rate" in one else None)
    return _over_time("Hit rate over time", "All phases.", "hit rate", [Line("hit rate", points, "s0")], nice_ticks(0, 1))


def _speed(samples: Sequence[Field]) -> Chart | None:
    points = _points(samples, lambda one: one["anchor_tps"].number() if "anchor_tps" in one else None)
    high = max((y for _, y in points), default=1.0)
    return _over_time("Speed of the anchors", "The same work every time.", "tokens/s", [Line("anchors", points, "s2")], nice_ticks(0, high))


def _memory(samples: Sequence[Field]) -> Chart | None:
    points = _points(samples, lambda one: one["private_bytes"].number() / 2**20)
    high = max((y for _, y in points), default=1.0)
    return _over_time("The process's own memory", "MiB, no mapped files.", "MiB", [Line("memory", points, "s1")], nice_ticks(0, high))


def _points(samples: Sequence[Field], value: Callable[[Field], float | None]) -> tuple[tuple[float, float], ...]:
    found = [(one["seconds"].number() / 60, value(one)) for one in samples]
    known = [(x, y) for x, y in found if y is not None]
    return tuple(known[:: max(1, -(-len(known) // _MOST_POINTS))])


def _over_time(title: str, note: str, name: str, lines: list[Line], y_ticks: tuple[tuple[float, str], ...]) -> Chart | None:
    last = max((x for line in lines for x, _ in line.points), default=0.0)
    return Chart(title, note, "minutes", name, tuple(lines), nice_ticks(0, last), y_ticks) if last else None


KIND = Kind(
    "Soak",
    "A long session: anchor prompts replayed between churning generations, topic switches, aborted requests, parallel sequences, "
    "chats that fill the context and cold prompts. Anchors have to give the same bits every time.",
    content,
    apart=None,
)
