"""The page of `slotpool analyze --html`: tiles, curves, the heat map and the table of one analysis."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from statistics import fmean

import numpy as np

from slotpool.analyze import CURVE, WINDOWS, Analysis, LayerAnalysis
from slotpool.analyze.replay import BEFORE, BELADY, DEFAULT_POLICY, STEP
from slotpool.errors import printable
from slotpool.report import page
from slotpool.report.chart import Chart, Line, nice_ticks, svg
from slotpool.report.image import shades

_SHARES = tuple((index / 4, f"{index * 25} %") for index in range(5))
_RATES = tuple((index / 5, f"{index / 5:.1f}") for index in range(6))
_HEAT_COLOUR = (196, 86, 10)
_FIRST_TOKENS = 512
"""Tokens from a cold pool on that are drawn."""
_HOTTEST = 4.0
"""Times the even share at which a cell of the heat map is fully coloured."""


def render(analysis: Analysis, name: str) -> str:
    """The whole page as text. `name` is shown as the trace's."""
    facts = analysis.facts
    known = [facts.architecture, facts.engine, f"recorded by {facts.source}" if facts.source else "", f"{analysis.phase} rows"]
    cut = "" if analysis.is_complete else "cut off"
    dropped = f"{analysis.n_dropped} events dropped" if analysis.n_dropped else ""
    subtitle = " · ".join(printable(part) for part in (*known, cut, dropped) if part)
    drawn = [page.figure(chart.title, chart.note, svg(chart)) for chart in charts(analysis)]
    body = [page.tiles(_tiles(analysis)), page.figures([*drawn, _heat(analysis.layers), _table(analysis.layers)])]
    return page.page(f"Routing of {printable(name)}", subtitle, body)


def charts(analysis: Analysis) -> list[Chart]:
    """The charts that the analysis has data for, in the order of the page."""
    made = [
        _hit_rates(analysis),
        _coverage(analysis.layers),
        _working_set(analysis),
        _by_layer(analysis.layers),
        _warming(analysis),
        _switches(analysis),
    ]
    return [chart for chart in made if chart is not None]


def _tiles(analysis: Analysis) -> list[tuple[str, str]]:
    layers = analysis.layers
    rates = {(row.policy, row.share): row.hit_rate for row in reversed(analysis.hit_rates)}
    known = [layer.reuse for layer in layers if layer.reuse is not None]
    experts = sorted({layer.n_expert for layer in layers})
    values = [
        ("tokens", f"{analysis.n_tokens:,}".replace(",", " ")),
        ("layers with experts", str(len({layer.layer for layer in layers}))),
        ("experts used, of how many", f"{max(layer.n_expert_used for layer in layers) or '?'} / {'-'.join(map(str, experts))}"),
        ("traffic in the hottest quarter", f"{fmean(layer.coverage_25 for layer in layers):.0%}"),
        ("of a token's experts, asked for by the one before", f"{fmean(known):.0%}" if known else ""),
        *((f"hits with {share:.0%} of slots, {DEFAULT_POLICY}", _percent(rates.get((DEFAULT_POLICY, share)))) for share in (0.25, 0.5)),
    ]
    return [(name, value) for name, value in values if value]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _hit_rates(analysis: Analysis) -> Chart | None:
    kinds = list(dict.fromkeys(row.policy for row in analysis.hit_rates))
    if not kinds:
        return None
    lines = []
    for number, policy in enumerate(kinds):
        rows = [row for row in analysis.hit_rates if row.policy == policy]
        points = tuple((row.share, row.hit_rate) for row in rows)
        lines.append(Line("optimum" if policy == BELADY else policy, points, f"s{number}", has_marks=True))
    note = "Hits over lookups, one pool for each layer, empty at the start. The optimum (Belady, may refuse) knows the future."
    return Chart("Hit rate against slots", note, "slots, share of a layer's experts", "hit rate", tuple(lines), _SHARES, _RATES)


def _coverage(layers: Sequence[LayerAnalysis]) -> Chart:
    thin = [Line(_name(layer), tuple(zip(CURVE, layer.coverage, strict=True)), "thin") for layer in layers]
    means = tuple((share, fmean(layer.coverage[index] for layer in layers)) for index, share in enumerate(CURVE))
    lines = (*thin, Line("all alike", ((0, 0), (1, 1)), "even"), Line("mean", means, "s0"))
    note = "Share of the traffic that the hottest experts take. Thin lines are layers: the further up, the more a few experts matter."
    return Chart("Coverage", note, "hottest experts", "share of traffic", lines, _SHARES, tuple((y, f"{y:.0%}") for y, _ in _RATES))


def _working_set(analysis: Analysis) -> Chart | None:
    def points(means: Sequence[float | None]) -> tuple[tuple[float, float], ...]:
        return tuple((window, mean) for window, mean in zip(WINDOWS, means, strict=True) if mean is not None)

    mean = points(analysis.working_set)
    if len(mean) < 2:
        return None
    thin = [Line(_name(layer), points(layer.distinct), "thin") for layer in analysis.layers]
    n_expert = max(layer.n_expert for layer in analysis.layers)
    ticks = tuple((float(window), f"{window // 1024}k" if window >= 1024 else str(window)) for window in WINDOWS[: len(mean)])
    everything = Line("all experts", ((mean[0][0], n_expert), (mean[-1][0], n_expert)), "even")
    lines = (*thin, everything, Line("mean", mean, "s0", has_marks=True))
    note = "Distinct experts of a layer in a window of so many tokens, the mean over all windows. Where it bends is what slots are worth."
    y_ticks = nice_ticks(0, n_expert)
    return Chart("Working set", note, "window, tokens", "distinct experts", lines, ticks, y_ticks, is_log=True)


def _by_layer(layers: Sequence[LayerAnalysis]) -> Chart | None:
    main = [layer for layer in layers if layer.pass_ == layers[0].pass_]
    if len(main) < 2:
        return None
    curves = {
        "entropy": [(layer.layer, layer.entropy_bits / log2(layer.n_expert) if layer.n_expert > 1 else 0.0) for layer in main],
        "hottest 25 %": [(layer.layer, layer.coverage_25) for layer in main],
        "Gini": [(layer.layer, layer.gini) for layer in main],
        "reuse": [(layer.layer, layer.reuse) for layer in main if layer.reuse is not None],
    }
    lines = tuple(Line(name, tuple(points), f"s{number}", has_marks=len(main) < 40) for number, (name, points) in enumerate(curves.items()))
    last = main[-1].layer
    step = max(1, (last - main[0].layer) // 8)
    ticks = tuple((float(layer), str(layer)) for layer in range(main[0].layer, last + 1, step))
    note = "Entropy is a share of its largest value; reuse, of the experts that the token before asked for as well."
    return Chart("Layer by layer", note, "layer", "0 to 1", lines, ticks if ticks[-1][0] == last else (*ticks, (last, "")), _RATES)


def _warming(analysis: Analysis) -> Chart | None:
    if not analysis.warming:
        return None
    lines = []
    for number, warming in enumerate(analysis.warming):
        rates = warming.hit_rates[: _FIRST_TOKENS // STEP]
        points = tuple((STEP * (index + 0.5), rate) for index, rate in enumerate(rates))
        lines.append(Line(f"{warming.share:.0%} of slots", points, f"s{number}"))
    first = analysis.warming[0]
    marks = ((float(first.tokens), f"steady, {first.share:.0%}"),) if first.tokens is not None and first.tokens <= _FIRST_TOKENS else ()
    last = max(len(line.points) for line in lines) * STEP
    ticks = tuple((float(x), str(x)) for x in range(0, last + 1, max(STEP, last // 4)))
    note = f"Hit rate of each {STEP} tokens from an empty pool on, all layers together. Steady: 95 % of the rate of the second half."
    return Chart("From cold to steady", note, "tokens", "hit rate", tuple(lines), ticks, _RATES, marks=marks)


def _switches(analysis: Analysis) -> Chart | None:
    if not analysis.dips:
        return None
    lines = []
    for number, dip in enumerate(analysis.dips):
        ends = [0, *(end for end, _ in dip.after)]
        after = tuple(((low + high) / 2, rate) for low, (high, rate) in zip(ends, dip.after, strict=False))
        lines.append(Line(f"{dip.share:.0%} of slots", ((-BEFORE / 2, dip.before), *after), f"s{number}", has_marks=True))
    ticks = tuple((float(x), str(x)) for x in (-BEFORE, 0, 64, 128, 192, 256))
    n_switches = analysis.dips[0].n_switches
    switches = f"{n_switches} switch{'' if n_switches == 1 else 'es'}"
    note = f"Mean hit rates around {switches} to another text: {BEFORE} tokens before, stretches after."
    return Chart("Topic switch", note, "tokens after the switch", "hit rate", tuple(lines), ticks, _RATES, marks=((0.0, "switch"),))


def _heat(layers: Sequence[LayerAnalysis]) -> str:
    n_expert = max(layer.n_expert for layer in layers)
    values = np.zeros((len(layers), n_expert))
    for row, layer in enumerate(layers):
        if layer.counts.sum():
            values[row, : layer.n_expert] = layer.counts / layer.counts.sum() * layer.n_expert / _HOTTEST
    height = min(420, max(90, 14 * len(layers)))
    image = f'<img src="{shades(values, _HEAT_COLOUR)}" alt="heat map of experts" style="height: {height}px">'
    side = f'<div class="side"><span>layer {_short(layers[0])}</span><span>{_short(layers[-1])}</span></div>'
    foot = f'<div class="foot"><span>expert 0</span><span>{n_expert - 1}</span></div>'
    note = f"Traffic of every expert, a row for each layer: clear is none, the full colour {_HOTTEST:g} times the even share or more."
    return page.figure("Heat map", note, f'<div class="heat">{side}{image}{foot}</div>', is_wide=True)


def _table(layers: Sequence[LayerAnalysis]) -> str:
    header = ("layer", "rows", "experts", "entropy bits", "gini", "hottest 25 %", "hottest 50 %", "reuse", "never used")
    rows = [
        (
            _short(layer),
            str(layer.rows),
            str(layer.n_expert),
            f"{layer.entropy_bits:.2f}",
            f"{layer.gini:.3f}",
            f"{layer.coverage_25:.1%}",
            f"{layer.coverage_50:.1%}",
            "" if layer.reuse is None else f"{layer.reuse:.1%}",
            str(layer.n_never),
        )
        for layer in layers
    ]
    return page.figure("Layers", "The numbers behind the curves.", page.table(header, rows), is_wide=True)


def _short(layer: LayerAnalysis) -> str:
    return str(layer.layer) if layer.pass_ == "exps" else f"{layer.layer} {layer.pass_}"


def _name(layer: LayerAnalysis) -> str:
    return f"layer {_short(layer)}"
