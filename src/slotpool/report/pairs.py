"""Tables of a comparison: figures that are in both sets, and those in one alone. Compares nothing."""

from __future__ import annotations

from collections.abc import Sequence

from slotpool.report import words
from slotpool.report.compare import Comparison, Pair
from slotpool.report.facts import Figure, Source, Table
from slotpool.report.markdown import table_lines, text
from slotpool.report.sheets import origin

CAUTION = (
    "Ratios are after over before, with the interval at 95 % that the samples of both sets allow. The two were measured at "
    "different times: what else the machine did then is in no interval, and of 20 figures without a difference one is said to have "
    "one."
)


def pairs_table(found: Comparison) -> Table:
    """A row per figure in both sets."""
    header = ("benchmark", "workload", "arm", "what", "before", "after", "after / before", "95 % interval", "samples", "verdict")
    return Table("In both", header, tuple(_row(pair) for pair in found.pairs), CAUTION, n_text=4)


def _row(pair: Pair) -> tuple[str, ...]:
    before, after, unit = pair.before.spread, pair.after.spread, pair.before.unit
    cells = (words.measured(before.median, unit), words.measured(after.median, unit))
    ratio = "" if pair.ratio is None else words.times(pair.ratio.median)
    interval = "" if pair.ratio is None else words.times_between(pair.ratio)
    names = (pair.sources[0].kind, pair.before.workload, pair.before.arm, words.name_of(pair.before))
    n_samples = "" if pair.before.is_counted else f"{before.n} and {after.n}"
    return (*names, *cells, ratio, interval, n_samples, pair.verdict)


def alone_table(title: str, alone: Sequence[tuple[Source, tuple[Figure, ...]]]) -> Table:
    """A row per record that has figures the other set lacks."""
    header = ("benchmark", "record", "figures", "for instance")
    rows = [
        (source.kind, f"{source.file}, record {source.line}", str(len(figures)), words.figure_in_words(figures[0]))
        for source, figures in alone
    ]
    return Table(title, header, tuple(rows), n_text=2)


def comparison_markdown(found: Comparison) -> str:
    """The comparison as Markdown."""
    tables = (pairs_table(found), alone_table("Only before", found.only_before), alone_table("Only after", found.only_after))
    lines = [line for table in tables if table.rows for line in table_lines(table)]
    origins = dict.fromkeys(origin(source) for pair in found.pairs for source in pair.sources)
    return "\n".join([*lines, *(f"Record: {text(one)}.\n" for one in origins)])
