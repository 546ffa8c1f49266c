"""`slotpool drift` on the bundled model, as a user runs it: every logit against plain llama.cpp's, with evictions in every step.

Asserts nothing about speed; a verdict that is not `exact` is a failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from typing import Any

from benchmarks.record import RECORDS


def run() -> dict[str, Any]:
    """Runs the verb, which appends the record, and returns its document. RuntimeError where the pool changed anything."""
    model = resources.files("slotpool") / "data" / "demo.gguf"
    command = [
        sys.executable,
        "-m",
        "slotpool.cli",
        "drift",
        str(model),
        "--expect",
        "exact",
        "--json",
        "--record",
        str(RECORDS / "drift.jsonl"),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"expected no drift, found exit code {done.returncode}: {done.stdout[-500:]}")
    return dict(json.loads(done.stdout))


def line(made: dict[str, Any]) -> str:
    """The figures in one line."""
    found = f"{made['verdict']}, {made['top1_flips']} top-1 flips, largest KL divergence {made['kld']['max']:g}"
    return f"drift of {made['tokens']} tokens: {found}; {made['steps_with_evictions']} of {made['steps']} steps evicted"
