"""Probe and plan with a device that is an RPC server on this machine: a device like any other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testkit import syn
from tests.device.test_device_rpc import ENVIRONMENT, servers

__all__ = ["servers"]
SPEC = syn.Spec(n_layer=4, n_expert=16, n_expert_used=4)


def slotpool(cache: Path, *arguments: object) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "slotpool.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, env=ENVIRONMENT | {"XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_server_is_measured_and_planned_for(servers: list[str], model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    path, rpc = model_file(SPEC), ("--rpc", servers[0], "--threads", "1")
    code, found = slotpool(tmp_path, "probe", path, *rpc, "--seconds", "0.001", "--samples", "2")
    assert (code, [note for note in found["notes"] if "not measured" in note]) == (0, [])
    assert {"upload", "download", "latency", "node"} <= {one["what"] for one in found["speeds"] if one["subject"] == "RPC0"}
    code, planned = slotpool(tmp_path, "plan", path, *rpc, "--ctx", "512")
    assert (code, planned["verdict"]) == (1, "no-go")
    assert "whole model fits" in planned["reason"]
    (device,) = planned["devices"]
    assert device["name"] == "RPC0"
    assert device["kv"] > 0
    assert device["budget"] == device["free"] - sum(device[term] for term in ("weights", "kv", "compute", "reserved", "rail"))
