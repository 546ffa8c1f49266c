"""What plain llama.cpp answers: the fixed requests, asked once in a process of its own into which the core never comes.

The same settings, no repacking; on the devices where the session's layers are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slotpool import engine, loading
from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.soak.facts import Output, Settings
from slotpool.soak.loaded import first_driver, opened, texts_of
from slotpool.soak.requests import ask, fixed_requests

Replies = dict[str, tuple[Output, ...]]
_NOT_OURS = ("SLOTPOOL_PLAN", "LD_PRELOAD")


def plain_replies(path: Path, settings: Settings, pool: Mapping[str, Any]) -> Replies:
    """The outputs of every fixed request by its name. Raises SlotpoolError where plain llama.cpp cannot run the model."""
    asked = {
        "path": os.fspath(path),
        "settings": asdict(settings),
        "pool": {name: pool.get(name) for name in ("device", "rpc", "slots", "ram_budget")},
    }
    command = [sys.executable, "-m", "slotpool.soak"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise SlotpoolError(
            f"plain llama.cpp could not be asked: {printable(reason)[:400]}", do="--no-reference goes on without it.", exit_code=REFUSED
        )
    found = json.loads(done.stdout)
    return {name: tuple(Output(*one) for one in outputs) for name, outputs in found.items()}


def answer(asked: Mapping[str, Any]) -> dict[str, list[tuple[int, str, float, float]]]:
    """In the process of its own: loads the model without a pool and asks."""
    settings = Settings(**asked["settings"])
    pool = asked["pool"]
    engine.add_rpc_servers(pool["rpc"] or ())
    on_devices = {"n_gpu_layers": -1} if _is_on_devices(pool) else {}
    with opened(Path(asked["path"]), settings, {"slots": 0} | on_devices) as llm:
        driver, requests = first_driver(llm), fixed_requests(texts_of(llm), settings)
        replies = {name: ask(driver, request).outputs for name, request in requests.items()}
        if engine.is_registered() or loading.read_stats(llm)["lookups"]:
            raise SlotpoolError(
                "expected plain llama.cpp, found slotpool's core beside it: the comparison would prove nothing", exit_code=REFUSED
            )
    return {name: [(one.token, one.bits, one.logit, one.lead) for one in outputs] for name, outputs in replies.items()}


def _is_on_devices(pool: Mapping[str, Any]) -> bool:
    """Whether `loading.load` gives the session's layers to devices."""
    if pool["device"] in (None, ["auto"]):
        return pool["slots"] != 0 and pool["ram_budget"] is None and bool(engine.offload_devices())
    return bool(pool["device"] not in (["CPU"], "CPU"))


def _environment() -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    if "slotpool" in Path(known.get("GGML_BACKEND_PATH", "")).name:
        del known["GGML_BACKEND_PATH"]
    return known | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
