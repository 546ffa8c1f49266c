"""`slotpool bench` on the bundled model: every kind of arm that needs no device. One that is not what its name says is a failure."""

from __future__ import annotations

from typing import Any

from benchmarks.verb import recorded

SLOTS = "8,16,all"
ARMS = ("unpacked", "bypass", "static")


def run() -> dict[str, Any]:
    """Runs the verb, which writes the record, and returns its document."""
    return recorded("bench", "--slots", SLOTS, *(option for arm in ARMS for option in ("--arm", arm)))


def line(made: dict[str, Any]) -> str:
    """The figures in one line: generation against plain llama.cpp."""
    ratios = [one for one in made["ratios"] if one["what"] == "generation_tps" and one["against"] == "plain"]
    found = ", ".join(f"{one['arm']} {one['median']:.3f}x ({one['verdict']})" for one in ratios)
    return f"bench of the bundled model, generation against plain: {found}"
