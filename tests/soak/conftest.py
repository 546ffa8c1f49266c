"""Soaks of the bundled model, short ones, and what plain llama.cpp answers to the same requests, asked once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotpool import soak
from slotpool.cli.demo import model_path
from slotpool.soak.reference import Replies

SETTINGS = soak.Settings(n_ctx=192, n_threads=1, n_ubatch=48, n_parallel=3, n_generate=8, n_churn=8, n_turn=16)
CPU: dict[str, Any] = {"slots": 8, "device": "CPU", "require_pool": True}


@pytest.fixture(scope="session")
def demo() -> Path:
    return model_path()


@pytest.fixture(scope="session")
def plain(demo: Path) -> Replies:
    """Of SETTINGS, from a process without the core."""
    return soak.plain_replies(demo, SETTINGS, CPU)
