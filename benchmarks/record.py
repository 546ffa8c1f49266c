"""A self-describing record of one benchmark run: commit, engine, machine, every sample. One JSON line each.

Does not measure and does not judge.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from slotpool import engine, machine
from slotpool.cli import version

RECORDS = Path(__file__).with_name("records")


def spread(samples: Sequence[float]) -> dict[str, Any]:
    """Median, lowest, highest and all samples."""
    return {"median": median(samples), "low": min(samples), "high": max(samples), "samples": list(samples)}


def write(name: str, **facts: Any) -> dict[str, Any]:
    """Appends the record to `records/NAME.jsonl` and returns it."""
    record = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%d"),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "slotpool": version(),
        "engine": f"llama-cpp-python {engine.version()}",
        "machine": asdict(machine.read()) | {"cpu": _cpu()},
        "load_average": Path("/proc/loadavg").read_text().split()[0] if Path("/proc/loadavg").exists() else None,
        **facts,
    }
    RECORDS.mkdir(exist_ok=True)
    with open(RECORDS / f"{name}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    return record


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
