"""The page of `slotpool bench --html`, from a record: speeds against slots and depth, both tables, and what ran where. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slotpool.errors import printable
from slotpool.report import page
from slotpool.report.chart import Chart, Line, nice_ticks, svg
from slotpool.sizes import format_bytes

_SPEEDS = (
    ("generation_tps", "Generation", "tokens per second"),
    ("prompt_tps", "Prompt", "tokens per second"),
    ("ttft_ms", "First token", "ms"),
)
_WHATS = {"prompt_tps": "prompt", "generation_tps": "generation", "ttft_ms": "first token"}

Arms = Sequence[Mapping[str, Any]]


def render(record: Mapping[str, Any]) -> str:
    """The whole page as text."""
    found = record["results"]
    drawn = [page.figure(chart.title, chart.note, svg(chart)) for chart in charts(found["arms"])]
    tables = [_arms(found["arms"]), _ratios(found["ratios"]), _facts(record)]
    model = record["model"]["name"] if record["model"] else "a model"
    return page.page(f"Bench of {printable(model)}", _subtitle(record), [page.figures([*drawn, *tables])])


def charts(arms: Arms) -> list[Chart]:
    """Each speed against slots, where several pools differ in them, and against depth, where there are several."""
    made = [chart for what in _SPEEDS for chart in (_by_slots(arms, *what), _by_depth(arms, *what))]
    return [chart for chart in made if chart is not None]


def _by_slots(arms: Arms, what: str, title: str, unit: str) -> Chart | None:
    depths = sorted({arm["depth"] for arm in arms})
    lines = []
    for number, depth in enumerate(depths):
        pools = sorted((_slots(arm), arm[what]["median"]) for arm in arms if arm["kind"] == "pool" and arm["depth"] == depth)
        name = f"depth {depth}" if len(depths) > 1 else "pool"
        lines.append(Line(name, tuple(pools), f"s{number % 6}", has_marks=True))
    xs = sorted({x for line in lines for x, _ in line.points})
    if len(xs) < 2:
        return None
    first = [arm for arm in arms if arm["kind"] == "plain" and arm["depth"] == depths[0]]
    lines += [Line(arm["name"], ((xs[0], arm[what]["median"]), (xs[-1], arm[what]["median"])), "even") for arm in first]
    note = f"Medians of all rounds. Dashed: plain llama.cpp{f' at depth {depths[0]}' if len(depths) > 1 else ''}."
    return Chart(f"{title} against slots", note, "slots an expert tensor", unit, tuple(lines), nice_ticks(0, xs[-1]), _heights(lines))


def _by_depth(arms: Arms, what: str, title: str, unit: str) -> Chart | None:
    depths = sorted({arm["depth"] for arm in arms})
    if len(depths) < 2:
        return None
    names = list(dict.fromkeys(arm["name"] for arm in arms))
    lines = [
        Line(name, tuple((arm["depth"], arm[what]["median"]) for arm in arms if arm["name"] == name), f"s{number % 6}", has_marks=True)
        for number, name in enumerate(names)
    ]
    note = "Medians of all rounds; tokens that stand before the prompt."
    return Chart(f"{title} against depth", note, "depth, tokens", unit, tuple(lines), nice_ticks(0, depths[-1]), _heights(lines))


def _heights(lines: Sequence[Line]) -> tuple[tuple[float, str], ...]:
    return nice_ticks(0, max(y for line in lines for _, y in line.points))


def _slots(arm: Mapping[str, Any]) -> int:
    """What `auto` and `all` came to: the most of any layer."""
    return max((int(layer["slots"]) for layer in arm["stats"]["layers"]), default=0)


def _arms(arms: Arms) -> str:
    header = (
        "arm",
        "depth",
        "prompt t/s",
        "generation t/s",
        "first token ms",
        "hit rate",
        "copied/token",
        "slots take",
        "free RAM at the end",
    )
    rows = [
        (
            printable(arm["name"]),
            str(arm["depth"]),
            *(_spread(arm[what]) for what in ("prompt_tps", "generation_tps", "ttft_ms")),
            f"{arm['hit_rate']['median']:.1%}" if arm["hit_rate"] else "",
            format_bytes(round(arm["bytes_per_token"]["median"])) if arm["stats"]["pooled_tensors"] else "",
            format_bytes(arm["stats"]["slot_bytes"]) if arm["stats"]["slot_bytes"] else "",
            format_bytes(round(arm["free_bytes"]["RAM"]["median"])),
        )
        for arm in arms
    ]
    return page.figure("Arms", "Medians; in brackets the lowest and the highest round.", page.table(header, rows), is_wide=True)


def _ratios(ratios: Sequence[Mapping[str, Any]]) -> str:
    header = ("arm", "against", "depth", "what", "ratio", "interval", "verdict")
    rows = [
        (
            printable(one["arm"]),
            printable(one["against"]),
            str(one["depth"]),
            _WHATS[one["what"]],
            f"{one['median']:.3f}",
            f"{one['low']:.3f} to {one['high']:.3f}",
            one["verdict"],
        )
        for one in ratios
    ]
    note = "Ratios of speeds, paired round by round: above 1 is faster. No difference: the interval holds 1."
    return page.figure("Verdicts", note, page.table(header, rows), is_wide=True)


def _facts(record: Mapping[str, Any]) -> str:
    machine, engine, model = record["machine"], record["engine"], record["model"]
    rows = [
        ("model", f"{model['name']}, {format_bytes(model['bytes'])}, sha256 {model['sha256'][:16]}")
        if model
        else ("model", "not recorded"),
        ("text", f"{record['results']['text']['name']}, sha256 {record['results']['text']['sha256'][:16]}"),
        ("engine", f"{engine['package']}, {engine['llama_cpp']}"),
        ("built with", str(engine["build_flags"])),
        ("ABI", str(engine["abi"])),
        ("machine", f"{machine.get('cpu', '?')}, {machine.get('n_cores', '?')} cores, load {record['load_average']}"),
        *((f"device {one['name']}", f"{one['description']}, driver {one['driver'] or 'unknown'}") for one in record["devices"]),
        ("slotpool", f"{record['slotpool']}, commit {record['commit']}{' with changes' if record['uncommitted_changes'] else ''}"),
        ("options", _options(record["flags"])),
    ]
    cells = [(name, printable(text)) for name, text in rows]
    return page.figure("What ran where", "From the record.", page.table(("what", ""), cells), is_wide=True)


def _options(flags: Mapping[str, Any]) -> str:
    """Those that were given or have a value of their own."""
    flat = {**{name: value for name, value in flags.items() if name != "pool"}, **flags.get("pool", {})}
    shown = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in flat.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items() if value not in (None, "", False))


def _subtitle(record: Mapping[str, Any]) -> str:
    found = record["results"]
    tokens = found["tokens"]
    return (
        f"{found['rounds']} rounds in fresh processes, {tokens['prompt']} tokens of prompt, {tokens['generation']} generated, "
        f"{found['state']} · {record['date']}"
    )


def _spread(found: Mapping[str, Any]) -> str:
    return f"{found['median']:.1f} ({found['low']:.1f}-{found['high']:.1f})"
