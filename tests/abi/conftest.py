"""What the tests of the ABI check are made with: the installed engine's files, a compiler, processes of their own, a tiny model.

Whatever may crash runs in another process: a crash is then a failed test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
import pytest

import slotpool
from slotpool import model, plan
from testkit import syn

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

Compile = Callable[..., Path]
RunPython = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Wheel:
    """The files of the installed llama-cpp-python. There are two sets of ggml libraries in it, and `.so` is no link to `.so.0`."""

    lib: Path
    other_lib: Path
    include: Path

    @property
    def ggml(self) -> Path:
        """The ggml that libllama loads."""
        return self.lib / "libggml.so.0"


@dataclass(frozen=True)
class Tiny:
    """A SYN model of two layers, eight experts, two used; and a plan of four slots for it."""

    model: Path
    plan: Path


@pytest.fixture(scope="session")
def wheel() -> Wheel:
    package = Path(llama_cpp.__file__).parent
    return Wheel(package / "lib", package.parent / "lib", package.parent / "include")


@pytest.fixture(scope="session")
def tiny(model_file: Callable[[syn.Spec], Path], tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    spec = syn.Spec(arch="qwen3moe", n_layer=2, n_expert=8, n_expert_used=2)
    made = Tiny(model_file(spec), tmp_path_factory.mktemp("plan") / "tiny.plan")
    made.plan.write_text(plan.to_text(plan.make(model.read(made.model), 4)))
    return made


@pytest.fixture(scope="session")
def compile_cpp(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """compile_cpp(name, sources, *flags) makes an executable, or with -shared a library; an error of the compiler is a failed test."""
    folder = tmp_path_factory.mktemp("built")

    def make(name: str, sources: Sequence[Path], *flags: str) -> Path:
        made = folder / name
        command = [os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", *map(str, sources), "-o", str(made), *flags]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return made

    return make


@pytest.fixture(scope="session")
def linked_to_ggml(wheel: Wheel) -> list[str]:
    """Flags for a program or library that uses the ggml libllama uses."""
    libraries = ["-Wl,--no-as-needed", "-l:libggml.so.0", "-l:libggml-base.so.0", "-ldl"]
    return [f"-I{wheel.include}", f"-L{wheel.lib}", *libraries, f"-Wl,-rpath,{wheel.lib}"]


@pytest.fixture(scope="session")
def lying_ggml(compile_cpp: Compile, linked_to_ggml: list[str]) -> Path:
    return compile_cpp("liblying.so", [HERE / "lying_ggml.cpp"], "-shared", "-fPIC", *linked_to_ggml)


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """run_python(code, *arguments, **environment): a Python of its own that can import slotpool and the test kit."""

    def run(code: str, *arguments: object, **environment: object) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(map(str, (Path(slotpool.__file__).parents[1], ROOT)))
        chosen = {name: str(value) for name, value in environment.items()}
        # a failed assertion of ggml otherwise starts a debugger
        env = without_plan() | {"PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"} | chosen
        return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=env)

    return run


@pytest.fixture(scope="session")
def result_of(run_python: RunPython) -> Callable[..., dict[str, object]]:
    """As run_python, for code that ends well and prints JSON in its last line."""

    def run(code: str, *arguments: object, **environment: object) -> dict[str, object]:
        done = run_python(code, *arguments, **environment)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def without_plan() -> dict[str, str]:
    """This environment, less what would load the core into a program."""
    return {name: value for name, value in os.environ.items() if name not in ("SLOTPOOL_PLAN", "GGML_BACKEND_PATH", "SLOTPOOL_LIE")}
