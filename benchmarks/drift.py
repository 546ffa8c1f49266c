"""`slotpool drift` on the bundled model: every logit against plain llama.cpp's. Anything but exact is a failure."""

from __future__ import annotations

from typing import Any

from benchmarks.verb import recorded


def run() -> dict[str, Any]:
    """Runs the verb, which writes the record, and returns its document."""
    return recorded("drift", "--expect", "exact")


def line(made: dict[str, Any]) -> str:
    """The figures in one line."""
    found = f"{made['verdict']}, {made['top1_flips']} top-1 flips, largest KL divergence {made['kld']['max']:g}"
    return f"drift of {made['tokens']} tokens: {found}; {made['steps_with_evictions']} of {made['steps']} steps evicted"
