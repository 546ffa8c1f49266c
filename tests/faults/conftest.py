"""What the fault tests are made with: a library that makes reads go wrong, a file, and a process of its own for each fault."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slotpool
from slotpool import native

HERE = Path(__file__).parent
SIZE = (3 << 20) + 777
"""No multiple of any block, and more than one piece of a bounce buffer."""

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shim") / "libfaults.so"
    command = [
        os.environ.get("CC", "cc"),
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-shared",
        "-fPIC",
        str(HERE / "faults.c"),
        "-o",
        str(made),
        "-ldl",
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return made


@pytest.fixture(scope="session")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of random bytes, on a file system that reads directly."""
    path = tmp_path_factory.mktemp("data") / "experts.bin"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    if reason := native.File(path, direct=True).why_buffered:
        pytest.skip(f"{path.parent}: {reason}")
    return path


@pytest.fixture(scope="session")
def run_faulty(shim: Path, data_file: Path) -> Run:
    """run_faulty(script, *arguments, **faults): the JSON a script beside this file prints; it is told the file as its second argument.

    A script that hangs or crashes is a failed test.
    """

    def run(script: str, way: str, *arguments: object, **faults: object) -> dict[str, Any]:
        chosen = {f"FAULT_{name.upper()}": str(value) for name, value in faults.items()}
        package = {"PYTHONPATH": str(Path(slotpool.__file__).parents[1]), "LD_PRELOAD": str(shim), "FAULT_FILE": str(data_file)}
        command = [sys.executable, str(HERE / script), way, str(data_file), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | package | chosen)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run
