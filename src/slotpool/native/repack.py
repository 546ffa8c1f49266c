"""Layouts of the engine's own, learned as the core learns them. For tests: they see what the core sees."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from slotpool.native.library import Functions, declared

ROWS, BLOCKS = 16, 2
"""What an engine is asked to repack: rows, and blocks of a row."""
_Engine = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint8), ctypes.POINTER(ctypes.c_uint8))

# name, result, arguments
_FUNCTIONS: Functions = (
    (
        "slotpool_interleave",
        ctypes.c_size_t,
        (_Engine, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint8)),
    ),
)
core = declared(_FUNCTIONS)


def interleave(engine: Callable[[bytes], bytes], block_bytes: int, rows: bytes, n_rows: int, n_blocks: int) -> tuple[int, bytes]:
    """How many rows belong together in what `engine` makes of ROWS rows of BLOCKS blocks, and the same done with `rows`.

    0 and nothing where it cannot be learned.
    """
    n_probe = ROWS * BLOCKS * block_bytes

    def called(given: ctypes._Pointer[ctypes.c_uint8], to: ctypes._Pointer[ctypes.c_uint8]) -> None:
        ctypes.memmove(to, engine(ctypes.string_at(given, n_probe)), n_probe)

    made = (ctypes.c_uint8 * len(rows))()
    found = core().slotpool_interleave(_Engine(called), block_bytes, rows, n_rows, n_blocks, made)
    return found, bytes(made) if found else b""
