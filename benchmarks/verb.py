"""Runs a verb of slotpool on the bundled model as a user would, with its record among those of the benchmarks. Judges nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from typing import Any

from benchmarks.record import RECORDS


def recorded(verb: str, *options: str) -> dict[str, Any]:
    """The verb's document; it appended its record itself. RuntimeError where the verb says no."""
    model = str(resources.files("slotpool") / "data" / "demo.gguf")
    command = [sys.executable, "-m", "slotpool.cli", verb, model, *options, "--json", "--record", str(RECORDS / f"{verb}.jsonl")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"expected slotpool {verb} to say yes, found exit code {done.returncode}: {done.stdout[:500]}")
    return dict(json.loads(done.stdout))
