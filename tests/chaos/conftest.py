"""What the tests of the chaos device are made with: the compiled device, the program of scenarios, oracles on it.

Every scenario and every model runs in a process of its own: devices cannot be unloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import llama_cpp
import pytest

import slotpool
from testkit import chaos

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

Scenario = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def library() -> Path:
    return chaos.library()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("built") / "scenarios")


def compiled(made: Path, *flags: str) -> Path:
    """The program of scenarios, linked to the ggml that libllama loads."""
    package = Path(llama_cpp.__file__).parent
    lib = package / "lib"
    folders = [f"-I{package.parent / 'include'}", f"-I{ROOT / 'testkit/chaos'}", f"-L{lib}", f"-Wl,-rpath,{lib}"]
    libraries = ["-Wl,--no-as-needed", "-l:libggml.so.0", "-l:libggml-base.so.0", "-l:libggml-cpu.so.0", "-ldl", "-pthread"]
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", str(made)]
    sources = map(str, sorted(HERE.glob("*.cpp")))
    result = subprocess.run([*command, *flags, *sources, *folders, *libraries], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return made


@pytest.fixture(scope="session")
def scenario(program: Path, library: Path) -> Scenario:
    """scenario(name, **knobs) runs one and gives what it said; `expected` is the exit code."""

    def run(name: str, *, expected: int = 0, devices: int = 2, **knobs: float) -> dict[str, str]:
        done = started(program, library, name, devices=devices, **knobs)
        assert done.returncode == expected, (done.returncode, done.stdout, done.stderr)
        return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())

    return run


def started(program: Path, library: Path, name: str, **knobs: float) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("CHAOS_", "GGML_BACKEND_PATH"))}
    env |= {f"CHAOS_{knob.upper()}": str(value) for knob, value in knobs.items()} | {"GGML_NO_BACKTRACE": "1"}
    return subprocess.run([str(program), str(library), name], capture_output=True, text=True, timeout=120, env=env)


@pytest.fixture(scope="session")
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """python(code, *arguments): a Python of its own that can import slotpool and the test kit."""

    def run(code: str, *arguments: object, **environment: object) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(map(str, (Path(slotpool.__file__).parents[1], ROOT)))
        env = os.environ | {"PYTHONPATH": path} | {name: str(value) for name, value in environment.items()}
        return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=env)

    return run
