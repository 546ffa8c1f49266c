"""Records of `slotpool bench`: arms that took turns in fresh processes. Reads them, judges nothing: verdicts are the record's own."""

from __future__ import annotations

from collections.abc import Iterator

from slotpool.report import words
from slotpool.report.chart import Chart, Line, nice_ticks
from slotpool.report.facts import HIGHER, LOWER, NEITHER, Content, Figure, Headline, Ratio, Spread, Table
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind
from slotpool.report.tables import figures_table, ratios_table

_SPEEDS = (
    ("prompt_tps", "prompt", "tokens/s", HIGHER),
    ("generation_tps", "generation", "tokens/s", HIGHER),
    ("ttft_ms", "first token", "ms", LOWER),
)
_WHATS = {key: what for key, what, *_ in _SPEEDS}


def content(results: Field, flags: Field) -> Content:
    """Speeds of every arm, what its pool did, and the ratios with their intervals."""
    arms = results["arms"].each()
    speeds = [figure for arm in arms for figure in _speeds(arm)]
    others = [figure for arm in arms for figure in _others(arm)]
    plain = {arm["name"].text() for arm in arms if arm["kind"].text() == "plain"}
    ratios = tuple(_ratio(one, plain) for one in results["ratios"].each())
    tables = (figures_table(speeds), ratios_table(ratios, note=_NOTE, spread="interval"), _pools(arms))
    headlines = tuple(_headline(one, _place(flags)) for one in ratios if one.what == "generation" and one.is_ours)
    drawn = tuple(_charts(arms))
    return Content((*speeds, *others), ratios, tables, drawn, tuple(_notes(results)), headlines)


def _where(found: Field) -> str:
    depth = found["depth"].count()
    return f"depth {depth}" if depth else ""


def _speeds(arm: Field) -> Iterator[Figure]:
    for key, what, unit, better in _SPEEDS:
        yield Figure(arm["name"].text(), what, unit, arm[key].spread(), _where(arm), better)


def _others(arm: Field) -> Iterator[Figure]:
    name, where = arm["name"].text(), _where(arm)
    if "hit_rate" in arm:
        yield Figure(name, "hit rate", "share", arm["hit_rate"].spread(), where)
    yield Figure(name, "copied per token", "bytes", arm["bytes_per_token"].spread(), where, LOWER)
    for device, free in arm["free_bytes"].items():
        yield Figure(name, f"free at the end, {device}", "bytes", free.spread(), where, NEITHER)


def _ratio(one: Field, plain: set[str]) -> Ratio:
    what = one["what"].text()
    low, middle, high = (one[name].number() for name in ("low", "median", "high"))
    # the interval is of the centre, and need not hold the median of few rounds
    spread = Spread(middle, min(low, middle), max(high, middle), tuple(sample.number() for sample in one["samples"].each()))
    names = (one["arm"].text(), one["against"].text(), _WHATS.get(what, what))
    return Ratio(*names, spread, _where(one), one["verdict"].text(), is_ours=names[0] not in plain)


def _pools(arms: list[Field]) -> Table:
    header = ("arm", "depth", "hit rate", "lookups", "copied per token", "slots take", "exact")
    return Table("What the pools did", header, tuple(_pool(arm) for arm in arms))


def _pool(arm: Field) -> tuple[str, ...]:
    stats = arm["stats"]
    hits = words.measured(arm["hit_rate"].spread().median, "share") if "hit_rate" in arm else ""
    sizes = (arm["bytes_per_token"].spread().median, stats["slot_bytes"].number())
    exact = "yes" if stats["exact"].value is True else "no"
    texts = (words.measured(size, "bytes") for size in sizes)
    return (arm["name"].text(), str(arm["depth"].count()), hits, str(stats["lookups"].count()), *texts, exact)


def _headline(ratio: Ratio, place: str) -> Headline:
    return words.headline(ratio, f"slotpool bench, {place}, generation: {ratio.arm}")


def _place(flags: Field) -> str:
    """Where slots and experts are: what a pool can win follows from that."""
    pool = flags["pool"] if "pool" in flags else Field({}, flags.place)
    devices = [one.text() for one in pool["device"].each()] if "device" in pool else []
    is_on_disk = "ram_budget" in pool
    if devices:
        return f"slots on {', '.join(devices)}, experts {'on disk' if is_on_disk else 'in host memory'}"
    return "slots in host memory, experts on disk" if is_on_disk else "slots beside the experts in host memory"


def _notes(results: Field) -> Iterator[str]:
    tokens, text = results["tokens"], results["text"]
    counts = f"{tokens['prompt'].count()} tokens of prompt and {tokens['generation'].count()} generated"
    source = f"text {text['name'].text()}, sha256 {text['sha256'].text()[:16]}"
    yield f"{results['rounds'].count()} rounds, {results['state'].text()}, {counts}; {source}."
    for one in results["differences"].each():
        yield f"DIFFERENT: {one.text()}"


# ---- generation against slots and against depth ----


def _charts(arms: list[Field]) -> Iterator[Chart]:
    """Curves where there are two points or more."""
    pools = [arm for arm in arms if arm["kind"].text() == "pool"]
    by_depth = _curves([(arm, _where(arm) or "pool", _slots(arm)) for arm in pools])
    by_arm = _curves([(arm, arm["name"].text(), float(arm["depth"].count())) for arm in arms])
    plain = [arm for arm in arms if arm["kind"].text() == "plain" and not arm["depth"].count()]
    xs = sorted({x for line in by_depth for x, _ in line.points})
    even = [Line(arm["name"].text(), ((xs[0], _speed(arm)), (xs[-1], _speed(arm))), "even") for arm in plain] if xs else []
    yield from _chart("Generation against slots", "slots of an expert tensor", [*by_depth, *even], xs)
    depths = sorted({x for line in by_arm for x, _ in line.points})
    yield from _chart("Generation against depth", "tokens before the prompt", by_arm, depths)


def _curves(points: list[tuple[Field, str, float]]) -> list[Line]:
    names = list(dict.fromkeys(name for _, name, _ in points))
    found = {name: tuple(sorted((x, _speed(arm)) for arm, other, x in points if other == name)) for name in names}
    return [Line(name, curve, f"s{number % 6}", has_marks=True) for number, (name, curve) in enumerate(found.items())]


def _chart(title: str, x_name: str, lines: list[Line], xs: list[float]) -> Iterator[Chart]:
    if len(xs) > 1:
        high = max(y for line in lines for _, y in line.points)
        yield Chart(title, "Medians of all rounds.", x_name, "tokens/s", tuple(lines), nice_ticks(0, xs[-1]), nice_ticks(0, high))


def _speed(arm: Field) -> float:
    return arm["generation_tps"].spread().median


def _slots(arm: Field) -> float:
    """What `auto` and `all` came to: the most of any layer."""
    return float(max((layer["slots"].count() for layer in arm["stats"]["layers"].each()), default=0))


_NOTE = "Intervals and verdicts are those of bench, from paired rounds; of fewer than six rounds they are wide (docs/design/bench.md)."
KIND = Kind(
    "Bench",
    "Arms in fresh processes that take turns on the same text, plain llama.cpp always one of them; every arm proved what it is.",
    content,
    apart=None,
)
