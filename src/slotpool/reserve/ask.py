"""Asks the process that asks llama.cpp: one question, one answer, and its last words where it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slotpool.errors import REFUSED, SlotpoolError, printable, quoted
from slotpool.model import Model
from slotpool.reserve.facts import DeviceBytes, Reservation, Wanted

_SECONDS = 300
_NOT_OURS = ("GGML_BACKEND_PATH", "SLOTPOOL_PLAN")
"""The core and a user's own plan take no part: the question is about the engine alone."""


def reserve(model: Model, wanted: Wanted, *, rpc: Sequence[str] = (), backends: Sequence[str] = ()) -> Reservation:
    """What llama.cpp would reserve for `model` with the context `wanted`. `rpc` and `backends` (libraries) are added to its devices first.

    Raises SlotpoolError, with the engine's last words, when it would not run the model like that.
    """
    first = min(model.files, key=lambda file: file.shard)
    question = {"path": os.fsdecode(first.path), "rpc": list(rpc), "backends": list(backends), "wanted": asdict(wanted)}
    answer = _answer(question)
    if "error" in answer:
        raise SlotpoolError(
            f"expected llama.cpp to say what it would reserve, found that it does not: {quoted(str(answer['error']))}",
            where=printable(first.path),
            do="Try a smaller --ctx or --ubatch; slotpool inspect looks for damage.",
            exit_code=REFUSED,
        )
    devices = tuple(DeviceBytes(*one) for one in answer["devices"])
    return Reservation(devices, int(answer["n_nodes"]), int(answer["n_splits"]))


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), kept.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "slotpool.reserve"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(question),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            env=kept | {"PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_SECONDS} s"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return {"error": f"its process ended with {done.returncode}: {lines[-1] if lines else 'no word'}"}
    return answer
