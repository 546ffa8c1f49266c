"""`slotpool top`: every process of this user that uses a pool, what it has done and what it does now.

Stops nobody and changes nothing: it reads the stats pages that processes leave open to their user.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import datetime, timezone
from typing import Any

import click

from slotpool.cli.live import Screen
from slotpool.cli.output import json_option, print_json, print_line, print_note, print_table
from slotpool.cli.top_tables import NOBODY, Process, Table, tables
from slotpool.errors import SlotpoolError
from slotpool.page import Look, look, stats_of, window


@click.command("top")
@click.option("--once", is_flag=True, help="Show it once and end; without a terminal on stdout that is what happens anyway.")
@click.option("--interval", type=click.FloatRange(0.05, 3600), default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--layers", "with_layers", is_flag=True, help="A table of every process's layers and devices too.")
@click.option("--tensors", "with_tensors", is_flag=True, help="A table of every process's expert tensors too: state, reason, counters.")
@json_option
def command(once: bool, interval: float, with_layers: bool, with_tensors: bool, as_json: bool) -> None:
    """Show every process of this user that uses a pool.

    Rates, times and the first hit rate are of the time between two looks, totals since the process loaded its model. q or Ctrl-C
    ends it. With --json stdout is one document, processes: [pid, program, model, started, session, stats, window: {seconds, stats}].
    """
    if math.isnan(interval):
        raise SlotpoolError("expected seconds, found nan", where="slotpool top --interval")
    if as_json or once or not sys.stdout.isatty():
        _show_once(interval, with_layers, with_tensors, as_json)
    else:
        _show_live(interval, with_layers, with_tensors)


def _show_once(interval: float, with_layers: bool, with_tensors: bool, as_json: bool) -> None:
    before = after = Look(look())
    if before.found.pages:
        time.sleep(interval)
        after = Look(look())
    for problem in after.found.problems:
        print_note(f"slotpool: {problem}")
    seen = _processes(before, after)
    if as_json:
        print_json({"processes": [_document(process) for process in seen]})
    else:
        _print_tables(tables(seen, with_layers, with_tensors))


def _print_tables(made: list[Table]) -> None:
    if not made:
        print_line(NOBODY)
    for table in made:
        if table.title:
            print_line()
            print_line(table.title)
        print_table(table.header, table.rows, right=table.right)


def _show_live(interval: float, with_layers: bool, with_tensors: bool) -> None:
    before = Look(look())
    with Screen() as screen:
        while not screen.is_ended(interval):
            after = Look(look())
            screen.show(_lines(tables(_processes(before, after), with_layers, with_tensors), after.found.problems))
            before = after


def _lines(made: list[Table], problems: tuple[str, ...]) -> list[str]:
    lines = [] if made else [NOBODY]
    for table in made:
        lines += [*([""] if lines else []), *([table.title] if table.title else []), *table.lines()]
    return [*lines, "", *problems, f"{datetime.now():%H:%M:%S}  q: quit"]


def _processes(before: Look, after: Look) -> list[Process]:
    return [Process(page.facts.header, stats_of(page), window(before, after, page)) for page in after.found.pages]


def _document(process: Process) -> dict[str, Any]:
    header = process.header
    return {
        "pid": header.pid,
        "program": header.program,
        "model": header.model,
        "started": datetime.fromtimestamp(header.started_ns / 1e9, timezone.utc).isoformat(),
        "session": header.session,
        "stats": process.stats,
        "window": {"seconds": process.window.seconds, "stats": process.window.stats},
    }
