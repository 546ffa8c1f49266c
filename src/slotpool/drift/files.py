"""Which files were compared: names, sizes, fingerprints, and of two different ones the bytes that differ and whose they are.

Reads files whole only where two were named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from slotpool.errors import SlotpoolError, printable
from slotpool.model import GgufFile, Model
from slotpool.trace.fingerprint import fingerprint

_PIECE = 8 << 20


def compared_files(ours: Model, reference: Model) -> dict[str, Any]:
    """`model` and, where plain llama.cpp loaded another one, `against`; `differ` counts bytes, `first` is the place of the first."""
    if reference is ours:
        return {"model": _named(ours), "against": None, "differ": 0, "first": None}
    differ, first = difference(ours, reference)
    return {"model": _named(ours), "against": _named(reference), "differ": differ, "first": first}


def difference(ours: Model, other: Model) -> tuple[int, str | None]:
    """Bytes that differ, shard by shard (a missing byte differs), and where the first one is in `ours`, in words; None for equal files."""
    differ, first = 0, None
    pairs = list(zip(_in_order(ours), _in_order(other), strict=False))
    for left, right in pairs:
        for offset, count in _different_pieces(left.path, right.path):
            differ += count
            first = first or _place(left, offset)
    rest = [file.size for files in (_in_order(ours), _in_order(other)) for file in files[len(pairs) :]]
    return differ + sum(rest), first or ("a shard that the other does not have" if rest else None)


def _named(facts: Model) -> dict[str, Any]:
    first = _in_order(facts)[0]
    return {"name": first.path.name, "bytes": sum(file.size for file in facts.files), "fingerprint": fingerprint(facts)}


def _in_order(facts: Model) -> list[GgufFile]:
    return sorted(facts.files, key=lambda file: file.shard)


def _different_pieces(left: Path, right: Path) -> Iterator[tuple[int, int]]:
    """(offset of the first byte that differs, how many do) of every piece where some do."""
    try:
        with left.open("rb") as one, right.open("rb") as two:
            offset = 0
            while (ours := one.read(_PIECE)) or two.peek(1):
                theirs = two.read(len(ours) or _PIECE)
                length = min(len(ours), len(theirs))
                is_different = np.frombuffer(ours, np.uint8, length) != np.frombuffer(theirs, np.uint8, length)
                count = int(is_different.sum()) + max(len(ours), len(theirs)) - length
                if count:
                    yield offset + (int(is_different.argmax()) if is_different.any() else length), count
                offset += max(len(ours), len(theirs))
    except OSError as error:
        raise SlotpoolError(f"cannot compare the files: {error.strerror}", where=printable(error.filename or left)) from error


def _place(file: GgufFile, offset: int) -> str:
    """The tensor, and of a tensor of experts the expert, at a byte of a file."""
    for tensor in file.tensors:
        if tensor.offset <= offset < tensor.offset + tensor.n_bytes:
            expert = f", expert {(offset - tensor.offset) // tensor.slab_bytes}" if "_exps." in tensor.name and tensor.slab_bytes else ""
            return f"byte {offset}, in {printable(tensor.name)}{expert}"
    return f"byte {offset}, in the header" if offset < file.data_offset else f"byte {offset}, between tensors"
