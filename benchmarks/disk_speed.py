"""What the disk gives right now: slabs of a model's own file, read at random places with direct I/O, several in flight.

A disk's speed drifts, so a figure that depends on it is measured beside it. How many reads in flight a disk likes best depends on the
disk: the fastest of IN_FLIGHT counts, since a bound that is too low flatters. Uses nothing of slotpool's own readers.
"""

from __future__ import annotations

import mmap
import os
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cgroup import SkippedError
from slotpool import model

IN_FLIGHT = (2, 4)
SECONDS = 1.5
"""Of each count."""
_BLOCK = 4096

Piece = tuple[int, int]
"""Offset and length of a read, both multiples of a block."""


def slabs(path: Path) -> list[Piece]:
    """Every expert's bytes in the file, with the blocks around them."""
    found = []
    for tensor in model.read(path).experts:
        for expert in range(tensor.n_expert):
            begin = (tensor.offset + expert * tensor.slab_bytes) // _BLOCK * _BLOCK
            end = tensor.offset + (expert + 1) * tensor.slab_bytes
            found.append((begin, -(-(end - begin) // _BLOCK) * _BLOCK))
    return found


def measure(path: Path, pieces: Sequence[Piece], seconds: float = SECONDS) -> float:
    """Bytes per second of random reads out of `pieces`. Raises SkippedError where direct I/O is not possible."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        raise SkippedError(f"expected a file system with direct I/O, found: {error.strerror} (at {path})") from error
    try:
        return max(_speed(file, pieces, seconds, count) for count in IN_FLIGHT)
    finally:
        os.close(file)


def _speed(file: int, pieces: Sequence[Piece], seconds: float, in_flight: int) -> float:
    n_bytes = [0] * in_flight
    started = time.perf_counter()

    def read(worker: int) -> None:
        order = random.Random(f"{started} {worker}")
        with mmap.mmap(-1, max(length for _, length in pieces)) as memory:  # begins on a page
            while time.perf_counter() - started < seconds:
                offset, length = order.choice(pieces)
                with memoryview(memory)[:length] as view:
                    n_bytes[worker] += os.preadv(file, [view], offset)

    threads = [threading.Thread(target=read, args=(worker,)) for worker in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(n_bytes) / (time.perf_counter() - started)
