"""What a storm is run with, built under a sanitizer and kept in the user's cache: the core, the chaos device, storm.cpp.

The engine is not built here: AddressSanitizer takes the installed one as it is, ThreadSanitizer wants one of its own
(`make programs PRESET=tsan`).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import llama_cpp

from testkit import chaos

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FLAGS = {
    "address": ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1", "-g1"),
    "thread": ("-fsanitize=thread", "-fno-omit-frame-pointer", "-O1", "-g1"),
}
"""Sanitizers, with what the compiler is told."""
THREAD_ENGINE = "make programs PRESET=tsan"


class BuildError(RuntimeError):
    """Something could not be built: what, and the tool's own last words."""


@dataclass(frozen=True)
class Built:
    """Files for one sanitizer."""

    sanitizer: str
    program: Path
    core: Path
    chaos: Path


def engine(sanitizer: str) -> Path | None:
    """The folder of the engine's libraries; None where the engine that ThreadSanitizer wants was not built yet."""
    if sanitizer == "thread":
        return _programs().find("tsan")  # type: ignore[no-any-return]
    return Path(llama_cpp.__file__).parent / "lib"


def is_usable(sanitizer: str) -> bool:
    """Whether programs under this sanitizer start on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "empty.cpp", Path(folder) / "empty"
        source.write_text("int main() { return 0; }\n")
        made = subprocess.run([_compiler(), str(source), *FLAGS[sanitizer], "-o", str(program)], capture_output=True)
        return made.returncode == 0 and subprocess.run([str(program)], capture_output=True).returncode == 0


def build(sanitizer: str) -> Built:
    """Builds what is missing or older than its sources. BuildError when a tool fails, or when there is no engine."""
    lib = engine(sanitizer)
    if lib is None:
        raise BuildError(f"expected an engine for the {sanitizer} sanitizer, found none. Do: {THREAD_ENGINE}")
    return Built(sanitizer, _program(sanitizer, lib), _core(sanitizer), chaos.library(*FLAGS[sanitizer]))


def cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slotpool" / "storm"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _core(sanitizer: str) -> Path:
    """A build folder for each checkout: only what has changed is compiled again."""
    flags = " ".join(FLAGS[sanitizer])
    folder = cache() / f"core-{sanitizer}-{_key(str(ROOT), flags)}"
    chosen = ("-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DCMAKE_CXX_FLAGS_RELWITHDEBINFO={flags}")
    jobs = os.environ.get("SLOTPOOL_STORM_JOBS", str(len(os.sched_getaffinity(0))))
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "CMakeCache.txt").exists():
            _call("cmake", "-S", str(ROOT), "-B", str(folder), *chosen)
        _call("cmake", "--build", str(folder), "--target", "slotpool", "--parallel", jobs)
    return folder / "libslotpool.so"


def _program(sanitizer: str, lib: Path) -> Path:
    source = HERE / "storm.cpp"
    header = ROOT / "core" / "include" / "slotpool.h"
    include = Path(llama_cpp.__file__).parents[1] / "include"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", *FLAGS[sanitizer], f"-I{include}", f"-I{header.parent}"]
    libraries = ["-Wl,--no-as-needed", "-l:libllama.so.0", "-l:libggml.so.0", "-l:libggml-base.so.0", "-ldl", "-pthread"]
    command = [_compiler(), *flags, str(source), f"-L{lib}", f"-Wl,-rpath,{lib}", *libraries]
    texts = (path.read_text() for path in (source, header, include / "llama.h"))
    made = cache() / f"storm-{sanitizer}-{_key(*command, *texts)}"
    if not made.exists():
        fresh = made.with_suffix(f".{os.getpid()}")
        _call(*command, "-o", str(fresh))
        fresh.replace(made)
    return made


def _key(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"expected {command[0]} to succeed, got {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")


def _programs() -> ModuleType:
    """scripts/programs.py as a module."""
    spec = importlib.util.spec_from_file_location("programs", ROOT / "scripts" / "programs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["programs"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module
