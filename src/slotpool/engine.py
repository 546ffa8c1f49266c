"""The engine that is installed: llama-cpp-python, the ggml its libllama loaded, its log. The only place that imports it for facts.

Changes nothing in the engine but its log callback, and that only while `captured_log` is open.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import llama_cpp

from slotpool import native
from slotpool.errors import SlotpoolError

_ERROR_LEVEL = 4
_CONTINUED_LEVEL = 5


def version() -> str:
    """Version of llama-cpp-python."""
    return metadata.version("llama-cpp-python")


def n_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def function_address(name: str) -> int:
    """Address of a function in the ggml that libllama itself loaded; another copy in the process is never looked at."""
    return ctypes.cast(_function(name), ctypes.c_void_p).value or 0


def ggml_path() -> Path | None:
    """The file of the ggml that libllama loaded; None where the system does not say."""
    return _mapped_file(function_address("ggml_backend_load"))


def ggml_copies() -> list[Path]:
    """Every libggml-base that is loaded in this process. More than one is trap 1 of the design."""
    return sorted({path for path in _mapped_files() if path.name.startswith("libggml-base")})


def abi_problem() -> str:
    """Why the core does not fit the running ggml; empty when it fits."""
    return native.check_abi(function_address("ggml_backend_load"))


def register_core() -> None:
    """Makes ggml load the core, once; a session must be open. Raises SlotpoolError, with the core's own words, when it refuses."""
    if is_registered():
        return
    load = _function("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)
    with captured_log() as lines:
        load(os.fsencode(native.CORE_PATH))
    if not is_registered():
        reason = native.last_error() or "; ".join(lines) or "ggml_backend_load gave no reason"
        raise SlotpoolError(reason, do="slotpool doctor shows what is installed. The pool stays out.")


def is_registered() -> bool:
    """Whether the registry that libllama asks has the core in it."""
    by_name = _function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)
    return bool(by_name(b"slotpool"))


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """Collects the engine's error lines instead of printing them, for messages that would otherwise be lost."""
    lines: list[str] = []

    @llama_cpp.llama_log_callback
    def collect(level: int, text: bytes, _: Any) -> None:
        if level == _ERROR_LEVEL:
            lines.append(text.decode("utf-8", "replace").strip())
        elif level == _CONTINUED_LEVEL and lines:
            lines[-1] += text.decode("utf-8", "replace").rstrip()

    llama_cpp.llama_log_set(collect, ctypes.c_void_p(0))
    try:
        yield lines
    finally:
        llama_cpp.llama_log_set(llama_cpp._logger.llama_log_callback, ctypes.c_void_p(0))


def _function(name: str, result: Any = None, *arguments: Any) -> Callable[..., Any]:
    # looked up through libllama's own handle, so it is the ggml that libllama uses; a prototype of our own leaves the
    # one that llama-cpp-python may have set alone
    found = getattr(llama_cpp.llama_cpp._lib, name)
    prototype = ctypes.CFUNCTYPE(result, *arguments)
    made: Callable[..., Any] = prototype(ctypes.cast(found, ctypes.c_void_p).value)
    return made


def _mapped_files() -> list[Path]:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    lines = maps.read_text(errors="surrogateescape").splitlines()
    return [Path(parts[5]) for parts in (line.split(maxsplit=5) for line in lines) if len(parts) == 6 and parts[5].startswith("/")]


def _mapped_file(address: int) -> Path | None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    for line in maps.read_text(errors="surrogateescape").splitlines():
        parts = line.split(maxsplit=5)
        low, high = (int(edge, 16) for edge in parts[0].split("-"))
        if low <= address < high and len(parts) == 6:
            return Path(parts[5])
    return None
