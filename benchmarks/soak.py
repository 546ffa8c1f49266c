"""`slotpool soak` on the bundled model for a quarter of an hour: answers that differ, or memory that grows, are a failure."""

from __future__ import annotations

from typing import Any

from benchmarks.verb import recorded

MINUTES, SLOTS = 15, 8


def run() -> dict[str, Any]:
    """Runs the verb, which writes the record, and returns its document."""
    return recorded("soak", "--minutes", str(MINUTES), "--slots", str(SLOTS))


def line(made: dict[str, Any]) -> str:
    """The figures in one line."""
    verdicts = made["verdicts"]
    anchors = f"{verdicts['anchors']['differences']} of {verdicts['anchors']['replays']} anchors differ"
    memory, speed = verdicts["memory"]["process"]["verdict"], verdicts["speed"]["verdict"]
    return f"soak of {made['seconds'] / 60:.0f} minutes: {anchors}, memory {memory}, speed: {speed}"
