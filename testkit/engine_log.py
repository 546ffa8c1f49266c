"""The engine's log, kept in a list while a test runs and given back to its owner afterwards."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import llama_cpp

ERROR = 4
"""The level of an error line in the engine's log."""


@contextmanager
def engine_log(lines: list[str] | None = None, *, errors_only: bool = False) -> Iterator[list[str]]:
    """What the engine logs within the block, as it comes, or its errors alone; into `lines` where a list is given."""
    lines = [] if lines is None else lines
    owner, owner_data = llama_cpp.llama_log_callback(), ctypes.c_void_p()

    def keep(level: int, text: bytes, _user: int) -> None:
        if level == ERROR or not errors_only:
            lines.append(text.decode(errors="replace"))

    kept = llama_cpp.llama_log_callback(keep)
    llama_cpp.llama_backend_init()
    llama_cpp.llama_log_get(ctypes.byref(owner), ctypes.byref(owner_data))
    llama_cpp.llama_log_set(kept, ctypes.c_void_p())
    try:
        yield lines
    finally:
        llama_cpp.llama_log_set(owner, owner_data)
