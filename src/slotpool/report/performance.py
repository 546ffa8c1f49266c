"""docs/performance.md: the newest record of every series, where we lose first. Reads no record and measures nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from slotpool.report.facts import Sheet, Table
from slotpool.report.losses import losses
from slotpool.report.markdown import row_lines, sheet_lines, text
from slotpool.report.sheets import newest

_HEAD = """# Performance

Written by `scripts/docs.py` from the records in `benchmarks/records/` and checked with every change: no figure stands here that is
not in a record. `make bench` makes all of them anew, `python -m benchmarks NAME` one of them; `slotpool report
benchmarks/records/*.jsonl` shows the same, `--html` with plots.

Speeds are medians. A ratio is made within one run, from rounds in which the arms took turns, and above 1 slotpool is better. The
verdict of six rounds or more is *better* or *worse* where the 95 % interval of the median (sign test) does not hold 1, else *no
difference shown*; fewer rounds are too few for an interval, and it says only what all of them agree on. Shared virtual machines
scatter: the load beside a record is that of everybody on the machine.
"""


def page(sheets: Sequence[Sheet], seconds: Mapping[str, int]) -> str:
    """The whole document. `seconds` says of every benchmark there is how long it takes."""
    shown = newest(sheets)
    lines = [_HEAD, *_durations(seconds, shown), *_losses(shown)]
    for sheet in shown:
        lines += sheet_lines(sheet)
    return "\n".join([*lines, *_records(shown, seconds)]).rstrip() + "\n"


def _durations(seconds: Mapping[str, int], shown: Sequence[Sheet]) -> list[str]:
    known = {sheet.source.kind for sheet in shown}
    missing = [name for name in seconds if name not in known]
    longest = max(seconds, key=lambda name: seconds[name])
    total = (
        f"All benchmarks take about {sum(seconds.values()) / 60:.0f} minutes on two cores, `{longest}` {seconds[longest] / 60:.0f} of them."
    )
    return [total + (f" Without a record so far: {', '.join(f'`{name}`' for name in missing)}." if missing else ""), ""]


def _losses(shown: Sequence[Sheet]) -> list[str]:
    found = losses(shown)
    lines = ["## Where we lose", "", "Every ratio of a newest record whose median is below 1, the worst first within a record.", ""]
    if not found.table.rows:
        return [*lines, "None of the records has one.", ""]
    return [*lines, *row_lines(found.table), "", *(f"{text(one)}.\n" for one in found.left_out)]


def _records(shown: Sequence[Sheet], names: Collection[str]) -> list[str]:
    rows = tuple(
        (
            sheet.source.kind,
            sheet.source.date,
            (sheet.source.commit or "") + (" with uncommitted changes" if sheet.source.has_changes else ""),
            ", ".join((sheet.source.machine, *sheet.source.devices)),
            f"python -m benchmarks {sheet.source.kind}" if sheet.source.kind in names else f"slotpool {sheet.source.kind}",
        )
        for sheet in shown
    )
    return ["## Records", "", *row_lines(Table("", ("kind", "date", "commit", "machine", "command"), rows, n_text=5)), ""]


def short_table(sheets: Sequence[Sheet]) -> list[str]:
    """The README's table: the headlines of every newest record, with when it was made."""
    rows = tuple(
        (one.what, one.value, one.spread, f"{sheet.source.date[:10]}, {sheet.source.commit or sheet.source.slotpool}")
        for sheet in newest(sheets)
        for one in sheet.content.headlines
    )
    return [*row_lines(Table("", ("what", "median", "lowest to highest", "record"), rows)), ""]
