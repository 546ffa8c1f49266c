"""A mapped file whose pages are not in memory, touched by several threads: what llama.cpp gets from a disk when it maps a model.

Drops the pages that it touches from the page cache; a file that another process has mapped keeps its own.
"""

from __future__ import annotations

import mmap
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from slotpool.errors import SlotpoolError, printable


class Faults:
    """Slabs at random places of [begin, end) of a file, one after the other, each shared among the threads as rows are."""

    def __init__(self, path: Path, begin: int, end: int, slab_bytes: int, n_threads: int) -> None:
        try:
            self._file = path.open("rb")
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise SlotpoolError(f"cannot map the file: {error}", where=printable(path)) from error
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._pages = range(-(-begin // mmap.PAGESIZE), max(-(-begin // mmap.PAGESIZE) + 1, (end - slab_bytes) // mmap.PAGESIZE))
        self._slab = max(mmap.PAGESIZE, slab_bytes // mmap.PAGESIZE * mmap.PAGESIZE)
        self._random = random.Random(7)
        self._threads = ThreadPoolExecutor(n_threads)
        self._n_threads = n_threads

    def repeat(self, seconds: float) -> tuple[int, float]:
        """Touches slabs for so long; bytes and seconds. Dropping pages beforehand does not count."""
        n_bytes, spent = 0, 0.0
        while spent < seconds:
            begin = self._random.choice(self._pages) * mmap.PAGESIZE
            self._drop(begin)
            began = time.perf_counter()
            n_bytes += self._touch(begin)
            spent += time.perf_counter() - began
        return n_bytes, spent

    def _drop(self, begin: int) -> None:
        # pages that somebody has mapped are not dropped: let go of ours first
        self._map.madvise(mmap.MADV_DONTNEED, begin, min(self._slab, len(self._map) - begin))
        os.posix_fadvise(self._file.fileno(), begin, self._slab, os.POSIX_FADV_DONTNEED)

    def _touch(self, begin: int) -> int:
        share = -(-self._slab // self._n_threads // mmap.PAGESIZE) * mmap.PAGESIZE
        parts = [self._bytes[at : min(at + share, begin + self._slab)] for at in range(begin, begin + self._slab, share)]
        list(self._threads.map(lambda part: int(part[:: mmap.PAGESIZE].sum()), parts))
        return sum(len(part) for part in parts)

    def close(self) -> None:
        """Lets go of the file."""
        self._threads.shutdown()
        del self._bytes
        self._map.close()
        self._file.close()
