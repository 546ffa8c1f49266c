"""The core's trace recorder alone, without a model: for tests of what it writes and what it drops."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Sequence

from slotpool.errors import SlotpoolError
from slotpool.native.library import TEXT_BYTES, Functions, declared, decoded

# name, result, arguments
_FUNCTIONS: Functions = (
    ("slotpool_recorder_start", ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_recorder_ring", ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)),
    (
        "slotpool_ring_push",
        None,
        (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
    ),
    ("slotpool_ring_free", None, (ctypes.c_void_p,)),
    (
        "slotpool_recorder_finish",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64), ctypes.c_char_p, ctypes.c_size_t),
    ),
)
core = declared(_FUNCTIONS)


class Ring:
    """Events of one pool on their way to the recorder. One thread pushes."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def push(self, ubatch: int, ids: Sequence[int], n_used: int, *, is_prompt: bool = False) -> None:
        """One event, ids in (token, k) order. Dropped, and counted, where there is no room."""
        rows = array("i", ids)
        core().slotpool_ring_push(self._handle, ubatch, int(is_prompt), n_used, rows.buffer_info()[0], len(ids))

    def close(self) -> None:
        """Forgets the ring; the recorder keeps its own hold of it."""
        core().slotpool_ring_free(self._handle)


class Recorder:
    """A recorder that appends to a trace file that has its header."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises SlotpoolError when the file cannot be written."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        self._handle = core().slotpool_recorder_start(os.fsencode(path), text, TEXT_BYTES)
        if not self._handle:
            raise SlotpoolError(decoded(text))

    def ring(self, layer: int, n_expert: int, *, context: int = 1, is_chunk: bool = False) -> Ring:
        """A ring for the pool of a layer in a context."""
        return Ring(core().slotpool_recorder_ring(self._handle, layer, int(is_chunk), n_expert, context))

    def finish(self) -> tuple[int, int]:
        """Writes the end; events recorded, events dropped. To be called once. Raises SlotpoolError when the file is not whole."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        n_events, n_dropped = ctypes.c_uint64(), ctypes.c_uint64()
        is_whole = core().slotpool_recorder_finish(self._handle, ctypes.byref(n_events), ctypes.byref(n_dropped), text, TEXT_BYTES)
        if not is_whole:
            raise SlotpoolError(decoded(text))
        return n_events.value, n_dropped.value
