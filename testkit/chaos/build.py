"""Compiles the chaos device once and keeps it in the user's cache: the key is its sources, its compiler and the ggml it is for."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slotpool import engine

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "core"
SHARED_WITH_CORE = [CORE / name for name in ("abi/load.cpp", "abi/verify.cpp", "os/library_posix.cpp")]
FLAGS = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Werror"]
LIBRARY_FLAGS = ["-shared", "-fPIC", "-fvisibility=hidden", f"-I{CORE}", f"-I{HERE}", "-ldl", "-pthread"]


class ChaosError(RuntimeError):
    """The chaos device could not be made, loaded or set: what was expected and what was found."""


def library(*flags: str) -> Path:
    """The compiled chaos device, with more flags for the compiler where given. ChaosError with the compiler's words."""
    command = [os.environ.get("CXX", "c++"), *FLAGS, *LIBRARY_FLAGS, *flags]
    made = _cache() / f"chaos-{_key(command)}.so"
    if not made.exists():
        _compile(command, made)
    return made


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slotpool-chaos"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _sources() -> list[Path]:
    return [*sorted(HERE.glob("*.cpp")), *SHARED_WITH_CORE]


def _key(command: Sequence[str]) -> str:
    ggml = engine.ggml_path()
    facts = ggml.stat() if ggml else None
    state = hashlib.sha256(repr((command, ggml, facts and (facts.st_size, facts.st_mtime_ns))).encode())
    for path in sorted({*_sources(), *HERE.glob("*.h"), *(CORE / "abi").glob("*.h"), *(CORE / "os").glob("*.h")}):
        state.update(path.name.encode() + path.read_bytes())
    return state.hexdigest()[:24]


def _compile(command: Sequence[str], made: Path) -> None:
    """Whoever comes first puts the library in its place, whole: others may compile it at the same time."""
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        fresh = Path(folder) / made.name
        try:
            result = subprocess.run([*command, *map(str, _sources()), "-o", str(fresh)], capture_output=True, text=True)
        except OSError as error:
            raise ChaosError(f"expected a C++ compiler, got {command[0]}: {error}") from error
        if result.returncode:
            raise ChaosError(f"expected the chaos device to compile, got: {result.stderr[:2000]}")
        fresh.replace(made)
