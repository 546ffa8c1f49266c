"""`slotpool drift` with slots on an RPC server, which serves one process at a time: plain llama.cpp runs there alone, before the pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testkit import syn
from tests.device.test_device_rpc import servers
from tests.drift.test_drift import run

__all__ = ["servers"]
SPEC = syn.Spec(n_layer=3, n_expert=12, n_expert_used=3)


def test_plain_runs_alone_on_a_server_and_is_compared_all_the_same(
    servers: list[str], model_file: Callable[[syn.Spec], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = model_file(SPEC)
    options = ("--rpc", servers[0], "--device", "RPC0", "--rail", "0", "--miss", "copy", "--limit", 20, "--ctx", 16, "--chunks", 1)
    code, found = run(capsys, path, *options)
    assert (code, found["verdict"], found["expected"]) == (0, "exact", "exact")
    assert [(arm["name"], arm["where"], arm["ran_alone"]) for arm in found["arms"]] == [
        ("cpu", "CPU", False),
        ("device", "RPC0", True),
        ("pool", "RPC0", False),
    ]
    assert found["placement"]["tokens_that_differ"] == 0
    assert found["evictions"] > 0
    code, found = run(capsys, path, *options, "--damage", "swap")
    assert (code, found["verdict"]) == (1, "different")
    assert found["placement"]["tokens_that_differ"] == 0
    assert found["pool_share"]["tokens_that_differ"] > 0
