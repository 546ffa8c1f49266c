"""Records for the tests of reports: whole, small, and of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any


def spread(*samples: float) -> dict[str, Any]:
    """As records have it."""
    return {"median": median(samples), "low": min(samples), "high": max(samples), "samples": list(samples)}


def record(kind: str, results: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A record of version 1."""
    made: dict[str, Any] = {
        "slotpool_record": 1,
        "kind": kind,
        "date": "2026-01-02T03:04:05Z",
        "commit": "abc1234",
        "uncommitted_changes": False,
        "slotpool": "0.1.0",
        "engine": {"package": "llama-cpp-python 0.3.36", "llama_cpp": None, "build_flags": None, "abi": None},
        "machine": {"cpu": "A processor", "n_cores": 2, "ram_total": 8 << 30},
        "load_average": 0.5,
        "devices": [],
        "model": None,
        "flags": {},
        "results": results,
    }
    return made | changed


def decode(*ratios: float, **changed: Any) -> dict[str, Any]:
    """A record of decode_resident with these ratios to plain; every round of plain is 10 tokens/s."""
    pool = [10 * ratio for ratio in ratios]
    results = {"pool_tps": spread(*pool), "plain_tps": spread(*[10.0] * len(ratios)), "ratio": spread(*ratios), "logits_equal": True}
    return record("decode_resident", results, **changed)


def written(path: Path, *records: dict[str, Any]) -> Path:
    """A file of records."""
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path
