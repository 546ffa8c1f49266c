"""Makes records: the facts of package, engine, machine, devices and model around a run's own results. Runs nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from slotpool import about, engine, machine
from slotpool.errors import SlotpoolError
from slotpool.model import read
from slotpool.records.digest import sha256_of
from slotpool.records.schema import VERSION
from slotpool.trace.fingerprint import fingerprint

_OURS = "slotpool: "
"""What the descriptions of the core's own devices begin with."""


def make(
    kind: str, *, model: Path | None = None, flags: Mapping[str, Any], results: Mapping[str, Any], load_average: float | None = None
) -> dict[str, Any]:
    """The record of a run, as JSON has it. `model` is the file that was run; None where there was none, or is none any more.

    `load_average` is what it was before the run; now where it is not given, which the run itself is part of. `flags` are the options
    that mattered, `results` the run's own document. Raises SlotpoolError for a model that cannot be read.
    """
    return {
        "slotpool_record": VERSION,
        "kind": kind,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": about.commit(),
        "uncommitted_changes": about.has_uncommitted_changes(),
        "slotpool": about.version(),
        "engine": engine_facts(),
        "machine": {**asdict(machine.read()), "cpu": machine.cpu_name()},
        "load_average": load_of_machine() if load_average is None else load_average,
        "devices": device_facts(),
        "model": None if model is None else model_facts(model),
        "flags": dict(flags),
        "results": dict(results),
    }


def engine_facts() -> dict[str, str | None]:
    """`package`, `llama_cpp` (version and commit), `build_flags` as llama.cpp prints them, `abi`: whether the core fits it."""
    try:
        problem = engine.abi_problem()
    except SlotpoolError as missing:
        problem = missing.message
    return {
        "package": engine.name(),
        "llama_cpp": engine.build(),
        "build_flags": engine.build_flags(),
        "abi": problem or f"fits, backend API {engine.backend_api()}",
    }


def device_facts() -> list[dict[str, Any]]:
    """The engine's devices, not those that the core adds; `driver` is None where nothing says it."""
    return [
        {
            "name": device.name,
            "description": device.description,
            "memory_bytes": device.total_bytes,
            "driver": machine.driver_version(device.name),
        }
        for device in engine.devices()
        if not device.description.startswith(_OURS)
    ]


def model_facts(path: Path) -> dict[str, Any]:
    """`name` of the file, `bytes` and `sha256` over all shards, `fingerprint` over the headers."""
    facts = read(path)
    return {
        "name": path.name,
        "bytes": sum(file.size for file in facts.files),
        "sha256": sha256_of([file.path for file in sorted(facts.files, key=lambda file: file.shard)]),
        "fingerprint": fingerprint(facts),
    }


def load_of_machine() -> float | None:
    """The load average of the last minute; None where the system has none."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
