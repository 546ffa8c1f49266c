"""What a process can see of itself and of a file: bytes read, memory held, pages cached; and the bits of a model's logits.

Imports no slotpool: programs that know nothing of it use this as well.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

MIB = 2**20
PROMPT = tuple(range(40, 80))
STEPS = ((1,), (2, 3), (90,), (4,), PROMPT, (5,), (200,), (6,))
"""Single tokens, a small batch and a prompt: the experts of a prompt take another way than those of a token."""


def bytes_read() -> dict[str, int]:
    """`rchar`: asked of the system by this process so far; `read_bytes`: fetched from a disk for it."""
    lines = Path("/proc/self/io").read_text().splitlines()
    numbers = {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}
    return {name: numbers[name] for name in ("rchar", "read_bytes")}


def status(name: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS, VmHWM, VmLck."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def forget_pages(path: str | os.PathLike[str]) -> None:
    """Puts the file's pages on disk and out of the page cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def cached_bytes(path: str | os.PathLike[str], ranges: Iterable[tuple[int, int]]) -> int:
    """How many bytes of the ranges [begin, end) lie in the page cache; pages that a range fills in part are not counted."""
    libc = ctypes.CDLL(None, use_errno=True)
    n_cached = 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
        n_pages = -(-len(mapped) // mmap.PAGESIZE)
        here = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * n_pages)()
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(here)), ctypes.c_size_t(len(mapped)), pages)
        del here
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        for begin, end in ranges:
            n_cached += sum(page & 1 for page in pages[-(-begin // mmap.PAGESIZE) : end // mmap.PAGESIZE])
    return n_cached * mmap.PAGESIZE


def logits(llm: Any, steps: Sequence[Sequence[int]] = STEPS) -> list[bytes]:
    """The last token's logits after each step, from the beginning, as bytes."""
    import llama_cpp

    llm.reset()
    rows = []
    for step in steps:
        llm.eval(list(step))
        row = llama_cpp.llama_get_logits_ith(llm.ctx, -1)
        rows.append(ctypes.string_at(row, 4 * llm.n_vocab()))
    return rows


def digest(rows: Iterable[bytes]) -> list[str]:
    """A short name for each row: equal names, equal bits."""
    return [hashlib.sha256(row).hexdigest()[:16] for row in rows]


def answer(**found: object) -> None:
    """The last line of a child."""
    print(json.dumps(found))
