"""How much of some files the system's page cache holds: what a cold start reads from a disk, and a warm one does not.

The one room that knows how a system says it; reads no byte of the files.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_WINDOW = 1 << 30
"""Bytes of a file that are looked at together."""


def cached_share(paths: Iterable[Path]) -> float | None:
    """Share of the files' bytes that the page cache holds, 0 to 1; None where the system does not say it, or there are no bytes."""
    found = [_cached(path) for path in paths]
    if any(one is None for one in found):
        return None
    n_bytes = sum(one[1] for one in found if one)
    return sum(one[0] for one in found if one) / n_bytes if n_bytes else None


def _cached(path: Path) -> tuple[int, int] | None:
    """Bytes that are in the page cache, and all bytes."""
    # Linux says it of files that the process may write or owns; of others it claims that all is there
    if sys.platform != "linux" or not _is_told(path):
        return None
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begins = range(0, size, _WINDOW)
            parts = [_cached_part(file.fileno(), begin, min(_WINDOW, size - begin)) for begin in begins]
    except (OSError, ValueError):
        return None
    return None if None in parts else (sum(part for part in parts if part), size)


def _is_told(path: Path) -> bool:
    try:
        return os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _cached_part(file: int, begin: int, n_bytes: int) -> int | None:
    n_pages = -(-n_bytes // mmap.PAGESIZE)
    flags = np.zeros(n_pages, np.uint8)
    with mmap.mmap(file, n_bytes, access=mmap.ACCESS_READ, offset=begin) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        status = _mincore(view.ctypes.data, n_bytes, flags.ctypes.data)
        del view  # the mapping cannot be closed while somebody looks at it
    if status:
        return None
    is_there = flags & 1
    last = n_bytes - (n_pages - 1) * mmap.PAGESIZE
    return int(is_there[:-1].sum()) * mmap.PAGESIZE + int(is_there[-1]) * last


def _mincore(address: int, n_bytes: int, flags: int) -> int:
    mincore = ctypes.CDLL(None).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return int(mincore(address, n_bytes, flags))
