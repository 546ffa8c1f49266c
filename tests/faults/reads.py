"""Reads a whole file in one of several ways and says what it found, in one line of JSON. Run in a process with the fault library.

{"right": reads with the file's bytes, "wrong": with others, "errors": texts of those that failed, "why_buffered", "injected": faults}
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from slotpool import native
from slotpool.errors import SlotpoolError

N_READS = 60

Outcome = tuple[int, int, bytes | SlotpoolError]
"""Offset and length that were asked for, and what came."""


def attempt(read: Callable[[], bytes]) -> bytes | SlotpoolError:
    try:
        return read()
    except SlotpoolError as error:
        return error


def places(file: native.File, size: int) -> Iterator[tuple[int, int, int]]:
    """(offset, capacity, needed) of slabs that cover the file, the last block included, and some more at random."""
    block = max(file.alignment, 512)
    draw = random.Random(2)
    slab = 40 * block
    offsets = [*range(0, size, slab), *(draw.randrange(size // block) * block for _ in range(N_READS))]
    for offset in offsets:
        needed = min(slab, size - offset)
        yield offset, -(-needed // block) * block, needed


def aligned(file: native.File, size: int) -> Iterator[Outcome]:
    for offset, capacity, needed in places(file, size):
        yield offset, needed, attempt(lambda o=offset, c=capacity, n=needed: file.read(o, c, n))


def anywhere(file: native.File, size: int) -> Iterator[Outcome]:
    draw = random.Random(3)
    spans = [(0, size), (1, size - 1), *((draw.randrange(size), draw.randrange(1, 200_000)) for _ in range(N_READS))]
    for offset, length in spans:
        length = min(length, size - offset)
        yield offset, length, attempt(lambda o=offset, n=length: file.read_anywhere(o, n, misalignment=o % 7))


def background(file: native.File, size: int) -> Iterator[Outcome]:
    reader = native.Reader(3)
    asked = list(places(file, size))
    for (offset, _, needed), read in [(one, reader.submit(file, *one)) for one in asked]:
        yield offset, needed, attempt(lambda r=read: reader.wait(r))


def main() -> None:
    way, path = sys.argv[1], Path(sys.argv[2])
    data = path.read_bytes()
    file = native.File(path, direct=True)
    ways = {"aligned": aligned, "anywhere": anywhere, "background": background}
    outcomes = list(ways[way](file, len(data)))
    came = [(offset, length, got) for offset, length, got in outcomes if isinstance(got, bytes)]
    right = sum(got == data[offset : offset + length] for offset, length, got in came)
    print(
        json.dumps(
            {
                "right": right,
                "wrong": len(came) - right,
                "errors": [str(got) for _, _, got in outcomes if isinstance(got, SlotpoolError)],
                "why_buffered": file.why_buffered,
                "injected": ctypes.CDLL(None).faults_injected(),
            }
        )
    )


if __name__ == "__main__":
    main()
