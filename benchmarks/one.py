"""Runs one benchmark in this process and prints its figures: `python -m benchmarks.one NAME`.

Judges nothing. The exit code is SKIPPED where the machine lacks what it needs.
"""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.cgroup import SkippedError

SKIPPED = 75
"""EX_TEMPFAIL: nothing is wrong, and nothing was measured."""


def main(name: str) -> int:
    """Measures, writes the record, prints the figures."""
    benchmark = import_module(f"benchmarks.{name}")
    try:
        made = benchmark.run()
    except SkippedError as reason:
        print(f"{name}: skipped: {reason}", flush=True)
        return SKIPPED
    print(benchmark.line(made), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
