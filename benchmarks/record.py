"""Writes a benchmark's record into `records/NAME.jsonl`: the facts of `slotpool.records` around what it measured.

Does not measure and does not judge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slotpool import records
from slotpool.records import spread

__all__ = ["FLAGS", "RECORDS", "spread", "write"]

RECORDS = Path(__file__).with_name("records")
FLAGS = (
    "device",
    "device_speed",
    "events",
    "expert_ns",
    "model",
    "n_used",
    "routing",
    "rounds",
    "setup",
    "slots",
    "spec",
    "threads",
    "tokens",
    "tokens_per_round",
    "trace",
)
"""Facts that say how something was run, not what came of it. `model` is the spec of a model that is written for the run."""


def write(name: str, *, model_file: Path | None = None, **facts: Any) -> dict[str, Any]:
    """Appends the record to `records/NAME.jsonl`, with FLAGS apart from the results, and returns `facts`, which all stand in it.

    `model_file` is the model where it is a file that lasts.
    """
    flags = {key: value for key, value in facts.items() if key in FLAGS}
    results = {key: value for key, value in facts.items() if key not in FLAGS}
    records.append(RECORDS / f"{name}.jsonl", records.make(name, model=model_file, flags=flags, results=results))
    return facts
