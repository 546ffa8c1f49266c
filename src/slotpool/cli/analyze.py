"""`slotpool analyze`: what a trace says about how experts are used, as tables, JSON or a page."""

from __future__ import annotations

from math import log2
from pathlib import Path

import click

from slotpool import trace
from slotpool.analyze import ALL, WINDOWS, Analysis, LayerAnalysis, analyze, document
from slotpool.analyze.replay import SHARES, STEP
from slotpool.cli.output import json_option, print_json, print_line, print_note, print_pairs, print_table
from slotpool.cli.parameters import OneOf
from slotpool.errors import printable
from slotpool.trace.writer import already_there


@click.command("analyze")
@click.argument("traces", type=click.Path(path_type=Path), metavar="TRACE")
@click.option(
    "--phase", type=OneOf("phase", (*trace.PHASES, ALL)), help="Which rows to take.  [default: generation where there is any, else prompt]"
)
@click.option(
    "--experts",
    "n_expert",
    type=click.IntRange(1),
    help="Experts of a layer, where a CSV or npz does not say it.  [default: largest id + 1]",
)
@click.option(
    "--used", "n_expert_used", type=click.IntRange(1), default=1, show_default=True, help="Lines of a layer,expert CSV that are one token."
)
@click.option("--no-pools", is_flag=True, help="Leave out what pools would have done, the slow part.")
@click.option("--salvage", is_flag=True, help="Of a damaged trace, take what stands before the damage.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Write a page with plots, one file that needs no other.")
@click.option("--force", is_flag=True, help="Overwrite the page.")
@json_option
def command(
    traces: Path,
    phase: str | None,
    n_expert: int | None,
    n_expert_used: int,
    no_pools: bool,
    salvage: bool,
    page: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Say how the experts in TRACE are used.

    Per layer: entropy of the traffic, Gini coefficient, the share of it that the hottest quarter and half of the experts take, and how much
    of a token's experts the token before asked for. For the model: distinct experts in windows of tokens, hit rates against slots, the way
    from an empty pool to a steady one, the dip after a topic switch. TRACE may also be CSV, npz or a JSON heat map of another tool.
    """
    if page is not None and page.exists() and not force:
        raise already_there(page)
    found = trace.load(traces, n_expert=n_expert, n_expert_used=n_expert_used, salvage=salvage)
    analysis = analyze(found, phase, with_pools=not no_pools)
    if page is not None:
        from slotpool.report.trace_page import render

        page.write_text(render(analysis, traces.name), "utf-8")
        print_note(f"slotpool: wrote {printable(page)}")
    if as_json:
        print_json(document(analysis))
    else:
        _print(analysis, traces)


def _print(analysis: Analysis, path: Path) -> None:
    print_pairs(_header(analysis, path))
    print_line()
    header = ("layer", "experts", "rows", "entropy bits", "of", "gini", "hottest 25 %", "hottest 50 %", "reuse", "never used")
    print_table(header, [_layer_row(layer) for layer in analysis.layers], right=header)
    if any(mean is not None for mean in analysis.working_set):
        print_line()
        known = zip(WINDOWS, analysis.working_set, strict=True)
        rows = [(str(window), _number(mean, 1)) for window, mean in known if mean is not None]
        print_table(("window", "distinct experts"), rows, right=("window", "distinct experts"))
    if analysis.hit_rates:
        print_line()
        _print_hit_rates(analysis)
    _print_time(analysis)


def _header(analysis: Analysis, path: Path) -> list[tuple[str, str]]:
    facts = analysis.facts
    whole = "" if analysis.is_complete else ", cut off"
    dropped = f", {analysis.n_dropped} events dropped" if analysis.n_dropped else ""
    return [
        ("trace", printable(path) + whole + dropped),
        ("model", printable(facts.architecture or facts.source or "unknown")),
        ("phase", analysis.phase),
        ("tokens", f"{analysis.n_tokens} in {max(1, analysis.n_segments)} segments"),
    ]


def _layer_row(layer: LayerAnalysis) -> tuple[str, ...]:
    name = str(layer.layer) if layer.pass_ == trace.PASSES[0] else f"{layer.layer} {layer.pass_}"
    experts = f"{layer.n_expert_used}/{layer.n_expert}" if layer.n_expert_used else str(layer.n_expert)
    return (
        name,
        experts,
        str(layer.rows),
        f"{layer.entropy_bits:.2f}",
        f"{log2(layer.n_expert):.2f}",
        f"{layer.gini:.3f}",
        f"{layer.coverage_25:.3f}",
        f"{layer.coverage_50:.3f}",
        _number(layer.reuse, 3),
        str(layer.n_never),
    )


def _print_hit_rates(analysis: Analysis) -> None:
    """A line for each policy and number of tokens, a column for each share of the experts in slots."""
    kinds = dict.fromkeys((row.policy, row.n_tokens) for row in analysis.hit_rates)
    rates = {(row.policy, row.n_tokens, row.share): row.hit_rate for row in analysis.hit_rates}
    header = ("hit rate", "tokens", *(f"{share:.1%} slots".replace(".0", "") for share in SHARES))
    rows = [(policy, str(tokens), *(f"{rates[policy, tokens, share]:.3f}" for share in SHARES)) for policy, tokens in kinds]
    print_table(header, rows, right=header[1:])


def _print_time(analysis: Analysis) -> None:
    for warming in analysis.warming:
        when = "not within the tokens looked at" if warming.tokens is None else f"after {warming.tokens} tokens"
        rates = f"steady {warming.steady:.3f}, first {STEP} tokens {warming.hit_rates[0]:.3f}"
        print_line(f"from cold to steady with {warming.share:.0%} slots: {when} ({rates})")
    for dip in analysis.dips:
        after = ", ".join(f"{rate:.3f} to {tokens}" for tokens, rate in dip.after)
        print_line(f"topic switch with {dip.share:.0%} slots: {dip.before:.3f} before, then {after} tokens (mean of {dip.n_switches})")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
