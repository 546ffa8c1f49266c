"""What the tests of experts on disk are made with: models, what plain llama.cpp says of them, processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slotpool
from slotpool import loading, model, native
from testkit import syn
from tests.disk.watch import STEPS, digest, logits
from tests.faults.conftest import shim as shim

ROOT = Path(__file__).parents[2]
SMALL = syn.Spec(n_expert=16, n_expert_used=4, router="rigged", n_layer=2)
WIDE = syn.Spec(n_layer=2, n_expert=32, n_expert_used=4, n_embd=512, n_head=8, n_ff_exp=512)
"""51 MiB of experts beside 9 MiB of everything else: who reads or keeps the experts is seen."""
CONTEXT: dict[str, Any] = {"n_ctx": 128, "n_threads": 1, "n_threads_batch": 1, "repack": False}

RunChild = Callable[..., dict[str, Any]]
Plain = Callable[..., list[str]]


@pytest.fixture(scope="session")
def run_child() -> RunChild:
    """run_child(code, *arguments, **environment): the JSON in the last line of a Python of its own; a crash is a failed test."""

    def run(code: str, *arguments: object, cwd: Path | None = None, **environment: object) -> dict[str, Any]:
        path = os.pathsep.join(map(str, (Path(slotpool.__file__).parents[1], ROOT)))
        known = {name: value for name, value in os.environ.items() if name not in ("SLOTPOOL_PLAN", "GGML_BACKEND_PATH")}
        env = known | {"PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"} | {name: str(value) for name, value in environment.items()}
        command = [sys.executable, "-c", code, *(one if isinstance(one, bytes) else str(one) for one in arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=cwd, errors="replace")
        assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


@pytest.fixture(scope="session")
def plain() -> Plain:
    """plain(path, steps): names of the logits of the whole model in memory, without a pool; asked once for each."""
    known: dict[tuple[Path, tuple[tuple[int, ...], ...]], list[str]] = {}

    def ask(path: Path, steps: tuple[tuple[int, ...], ...] = STEPS) -> list[str]:
        if (path, steps) not in known:
            llm = loading.load(path, slots=0, **CONTEXT)
            known[path, steps] = digest(logits(llm, steps))
            llm.close()
        return known[path, steps]

    return ask


@pytest.fixture(scope="session")
def small(model_file: Callable[[syn.Spec], Path]) -> Path:
    return on_a_disk(model_file(SMALL))


@pytest.fixture(scope="session")
def wide(model_file: Callable[[syn.Spec], Path]) -> Path:
    return on_a_disk(model_file(WIDE))


def on_a_disk(path: Path) -> Path:
    """The file itself, where it can be read directly; there is nothing to test elsewhere."""
    if reason := native.File(path, direct=True).why_buffered:
        pytest.skip(f"{path.parent}: {reason}")
    return path


def expert_ranges(path: Path) -> dict[Path, list[tuple[int, int]]]:
    """Where experts lie, by file: [begin, end) of every expert tensor."""
    facts = model.read(path)
    ranges: dict[Path, list[tuple[int, int]]] = {file.path: [] for file in facts.files}
    place = {file.shard: file.path for file in facts.files}
    for tensor in facts.experts:
        ranges[place[tensor.shard]].append((tensor.offset, tensor.offset + tensor.n_expert * tensor.slab_bytes))
    return ranges
