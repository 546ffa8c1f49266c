"""`python -m tests.storm`: 100,000 evictions under AddressSanitizer, and as many under ThreadSanitizer; exit code 1 when anything is wrong.

A row per run on stdout; what a sanitizer said goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from . import built
from .runs import VARIANTS
from .storm import Ran, Storm


def main() -> int:
    options = argparse.ArgumentParser(prog="storm", description=(__doc__ or "").split("\n")[0])
    options.add_argument("--sanitizer", choices=sorted(built.FLAGS), action="append", help="may be given twice (default: both)")
    options.add_argument("--evictions", type=int, default=100_000)
    options.add_argument("--steps", type=int, default=300, help="of a run; a round has a run of each variant")
    options.add_argument("--variant", default="", help="only variants whose name has this in it")
    chosen = options.parse_args()
    return max(_storm(name, chosen) for name in chosen.sanitizer or sorted(built.FLAGS))


def _storm(sanitizer: str, chosen: argparse.Namespace) -> int:
    if not built.is_usable(sanitizer):
        print(f"{sanitizer}: expected a compiler with this sanitizer, found none that works here")
        return 1
    try:
        made = built.build(sanitizer)
    except built.BuildError as error:
        print(f"{sanitizer}: {error}")
        return 1
    variants = [variant for variant in VARIANTS if chosen.variant in variant.name]
    done: list[Ran] = []
    with tempfile.TemporaryDirectory() as folder:
        for ran in Storm(made, Path(folder), chosen.steps).until(chosen.evictions, variants):
            done.append(ran)
            _show(sanitizer, ran)
    return _sum_up(sanitizer, done)


def _show(sanitizer: str, ran: Ran) -> None:
    on_cpu = ran.outcome.counts.get("rows_cpu", 0)
    figures = f"{ran.evicted:7d} evicted  {on_cpu:6d} rows on the CPU  {ran.outcome.seconds:6.1f} s  {ran.outcome.reports} reports"
    print(f"{sanitizer:8}{ran.seed:3d}  {figures}  {ran.variant.name}", *(f"\n    WRONG: {fault}" for fault in ran.faults), flush=True)
    if ran.faults:
        print(ran.outcome.stderr, file=sys.stderr, flush=True)


def _sum_up(sanitizer: str, done: list[Ran]) -> int:
    evicted, reports = sum(ran.evicted for ran in done), sum(ran.outcome.reports for ran in done)
    wrong, looks = sum(bool(ran.faults) for ran in done), sum(ran.outcome.looks for ran in done)
    seconds = sum(ran.outcome.seconds for ran in done)
    print(f"{sanitizer}: {evicted} evictions in {len(done)} runs and {seconds:.0f} s on {os.cpu_count()} cores,", end=" ")
    print(f"{reports} reports, {wrong} runs wrong, {looks} looks at the page from outside")
    return 1 if wrong or not done else 0


if __name__ == "__main__":
    sys.exit(main())
