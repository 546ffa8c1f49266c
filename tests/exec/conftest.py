"""What the tests of `slotpool exec` are made with: the command in a process of its own, programs to run, tiny models.

Programs are Python scripts where no engine is needed, host.cpp where one is, and llama.cpp's own where they were built (`make programs`).
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

import slotpool
from testkit import chaos, syn
from tests.abi.conftest import compile_cpp as compile_cpp
from tests.abi.conftest import wheel as wheel

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SPEC = syn.Spec(n_layer=3, n_expert=16, n_expert_used=4)
"""Experts in Q8_0, which no CPU repacks: plain llama.cpp then computes with the same kernels."""

Exec = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]


def environment(**changes: str) -> dict[str, str]:
    """This environment less what would load the core, with the checkout importable."""
    known = {name: value for name, value in os.environ.items() if name not in ("SLOTPOOL_PLAN", "GGML_BACKEND_PATH")}
    known = {name: value for name, value in known.items() if not name.startswith("LLAMA_ARG_")}
    path = os.pathsep.join(map(str, (Path(slotpool.__file__).parents[1], ROOT)))
    return known | {"PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"} | changes


def command(options: Sequence[object], program: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "slotpool.cli", "exec", *map(str, options), "--", *map(str, program)]


@pytest.fixture(scope="session")
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """run(command, ...) as subprocess.run, with text and a time limit; whatever the command started dies with it."""

    def made(command: Sequence[object], timeout_s: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {"env": environment()}
        text = str(options.pop("input", ""))
        with subprocess.Popen(list(map(str, command)), text=True, errors="replace", start_new_session=True, **(pipes | options)) as process:  # type: ignore[call-overload]
            try:
                out, err = process.communicate(text, timeout=timeout_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    return made


@pytest.fixture(scope="session")
def slotpool_exec(run: Callable[..., subprocess.CompletedProcess[str]]) -> Exec:
    """slotpool_exec(options, program): the command and its end."""
    return lambda options, program, **more: run(command(options, program), **more)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """script(code): a program in Python, as the beginning of a command; its `-m` is then an option of the script."""

    def made(code: str) -> list[str]:
        path = tmp_path / "program.py"
        path.write_text(code)
        return [sys.executable, str(path)]

    return made


@pytest.fixture(scope="session")
def model_path(model_file: Callable[[syn.Spec], Path]) -> Path:
    return model_file(SPEC)


@pytest.fixture(scope="session")
def host(compile_cpp: Callable[..., Path], wheel: object) -> Path:
    """host.cpp, built against the engine's own libraries."""
    lib, include = wheel.lib, wheel.include  # type: ignore[attr-defined]
    libraries = ["-Wl,--no-as-needed", "-l:libllama.so.0", "-l:libggml.so.0", "-l:libggml-base.so.0", f"-Wl,-rpath,{lib}"]
    return compile_cpp("host", [HERE / "host.cpp"], f"-I{include}", f"-L{lib}", *libraries)


def load_programs() -> ModuleType:
    """scripts/programs.py as a module."""
    spec = importlib.util.spec_from_file_location("programs", ROOT / "scripts" / "programs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["programs"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of llama.cpp's own programs."""
    made = load_programs()
    found = made.find()
    if found is None:
        pytest.skip(f"llama.cpp's own programs are not built yet: {made.COMMAND}")
    return Path(found)


@pytest.fixture(scope="session")
def rpc_server(programs: Path) -> Iterator[str]:
    """host:port of a ggml-rpc-server on this machine, with one thread; its device is RPC0 to whoever adds it alone."""
    port = free_port()
    server = subprocess.Popen(
        [programs / "ggml-rpc-server", "-H", "127.0.0.1", "-p", str(port), "-t", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not is_listening(port):
            assert server.poll() is None
            assert time.monotonic() < deadline, "the RPC server did not come up"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def is_listening(port: int) -> bool:
    # a connection would be a client, and the server takes one after the other
    wanted = f"0100007F:{port:04X}"
    return any(fields[1] == wanted and fields[3] == "0A" for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:]))


@pytest.fixture(scope="session")
def chaos_variables(compile_cpp: Callable[..., Path]) -> dict[str, str]:
    """What a program needs in its environment to have chaos devices; its knobs are CHAOS_<NAME>, `with_chaos.cpp` says the rest."""
    preload = compile_cpp("with-chaos.so", [HERE / "with_chaos.cpp"], "-shared", "-fPIC", "-ldl")
    return {"LD_PRELOAD": str(preload), "CHAOS_LIBRARY": str(chaos.library())}


def chaos_counts(path: Path) -> list[dict[str, int]]:
    """What the chaos devices of a program counted, by device."""
    found: dict[int, dict[str, int]] = {}
    for device, name, value in map(str.split, path.read_text().splitlines()):
        found.setdefault(int(device), {})[name] = int(value)
    return [found[device] for device in sorted(found)]


def pool_lines(stderr: str) -> list[str]:
    """What slotpool said: the core at exit, or the command."""
    return [line for line in stderr.splitlines() if line.startswith("slotpool: ")]
