"""One reading thread, held by the fault library in its first read, with five reads queued behind it. One line of JSON at the end.

`go_on`: a queued read is taken back, the running one is waited for, the others are served. `close`: the reader goes with its queue full.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from slotpool import native

BLOCKS = 16 * 4096
A_WHILE = 0.3


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.001)


def main() -> None:
    way, path, gate = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    data = path.read_bytes()
    file = native.File(path, direct=True)
    reader = native.Reader(1)
    reads = [reader.submit(file, i * BLOCKS, BLOCKS, BLOCKS) for i in range(6)]
    until(lambda: reads[0].state == native.ReadState.RUNNING)
    before = [read.state.name for read in reads]
    reader.cancel(reads[2])
    waits_for = reads[0]
    other = threading.Thread(target=reader.close if way == "close" else lambda: reader.cancel(waits_for))
    other.start()
    if way == "close":
        until(lambda: reads[5].state == native.ReadState.FAILED)
    other.join(A_WHILE)
    waits = other.is_alive()
    gate.touch()
    other.join()
    if way == "go_on":
        for read in (reads[1], *reads[3:]):
            reader.wait(read)
    print(
        json.dumps(
            {
                "before": before,
                "waits": waits,
                "after": [read.state.name for read in reads],
                "right": [read.bytes_read == data[i * BLOCKS : (i + 1) * BLOCKS] for i, read in enumerate(reads)],
                "untouched": [not any(read.bytes_read) for read in reads],
                "errors": sorted({read.error for read in reads}),
            }
        )
    )


if __name__ == "__main__":
    main()
