"""The ggml that libllama itself loaded: its functions, its file, and what else is mapped into this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp

from slotpool import native


def function_address(name: str) -> int:
    """Address of a function in the ggml that libllama itself loaded; another copy in the process is never looked at."""
    # looked up through libllama's own handle, which finds the ggml that libllama depends on
    return ctypes.cast(getattr(llama_cpp.llama_cpp._lib, name), ctypes.c_void_p).value or 0


def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of that ggml, or of libllama, with the ctypes of its result and arguments."""
    # a prototype of our own leaves the one that llama-cpp-python may have set alone
    return ctypes.CFUNCTYPE(result, *arguments)(function_address(name))


def ggml_path() -> Path | None:
    """The file of the ggml that libllama loaded; None where the system does not say."""
    address = function_address("ggml_backend_load")
    return next((file for low, high, file in _mappings() if low <= address < high), None)


def is_mapped(name: str) -> bool:
    """Whether a file whose name begins with `name` is mapped into this process. False where the system has no /proc."""
    return any(file.name.startswith(name) for _, _, file in _mappings())


def ggml_copies() -> list[Path]:
    """The libggml or libggml-base files of which this process has loaded more than one; empty when there is one of each.

    Two registries in a process: a plug-in in the wrong one loads, says so, and is never used.
    """
    files = {file for _, _, file in _mappings()}
    kinds = [[file for file in files if file.name.startswith(prefix)] for prefix in ("libggml.so", "libggml-base.so")]
    return sorted(file for kind in kinds if len(kind) > 1 for file in kind)


def is_core_mapped() -> bool:
    """Whether slotpool's core is in this process at all, loaded by ggml or by anybody else. False where the system has no /proc."""
    return any(file.name == native.CORE_PATH.name for _, _, file in _mappings())


def _mappings() -> Iterator[tuple[int, int, Path]]:
    """Address ranges of this process that map a file: low, high, file. Empty where the system has no /proc."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    for line in maps.read_text(errors="surrogateescape").splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5].startswith("/"):
            low, high = (int(edge, 16) for edge in parts[0].split("-"))
            yield low, high, Path(parts[5])
