"""Reads how often an imatrix saw each expert: the tensors `NAME.counts` of llama-imatrix's GGUF, one number an expert.

An imatrix has no fingerprint of its model: only layers and numbers of experts can be compared. The format before GGUF has one number a
tensor, and so nothing to read.
"""

from __future__ import annotations

import math
import os
import stat
import struct

from slotpool.errors import REFUSED, SlotpoolError, printable, quoted
from slotpool.model import GgufFile, Tensor, read_gguf
from slotpool.model.experts import expert_place
from slotpool.profile.facts import MAX_ROWS, Profile, of_heat
from slotpool.profile.reader import MAX_EXPERTS, MAX_LAYER
from slotpool.trace import PASSES, Facts

_SUFFIX = ".counts"
_FLOAT = struct.Struct("<f")


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like a GGUF; False for what cannot be read."""
    return _head(path, 4) == b"GGUF"


def is_old_imatrix(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like an imatrix of the format before GGUF: a number of entries, the length of a name, a tensor's name."""
    head = _head(path, 8 + 4)
    return len(head) == 12 and 0 < int.from_bytes(head[:4], "little") < 1 << 20 and head[8:] in (b"blk.", b"outp", b"toke")


def read_imatrix(path: str | os.PathLike[str]) -> Profile:
    """The profile of an imatrix. Raises SlotpoolError for another GGUF, one without counts of experts, and damage (exit code 1)."""
    file = read_gguf(path)
    if not file.is_complete:
        raise SlotpoolError(file.problems[0], where=printable(path), exit_code=REFUSED)
    counts: dict[tuple[int, str], list[int]] = {}
    for tensor in file.tensors:
        place = expert_place(tensor.name.removesuffix(_SUFFIX)) if tensor.name.endswith(_SUFFIX) else None
        if place is None:
            continue
        found = _counts(file, tensor)
        _keep(counts, (place.layer, PASSES[place.role.endswith("_ch")]), found, tensor, path)
    made = of_heat(_facts(file), counts)
    if not made.groups:
        kind = "a model" if "general.architecture" in file.metadata else "a GGUF without any"
        raise SlotpoolError(f"expected an imatrix with counts of experts, found {kind}", where=printable(path))
    return made


def _keep(
    counts: dict[tuple[int, str], list[int]], place: tuple[int, str], found: list[int], tensor: Tensor, path: str | os.PathLike[str]
) -> None:
    """Gate, up and down of a layer share their routing: the first that was counted speaks."""
    known = counts.setdefault(place, found)
    if len(known) != len(found):
        text = f"expected {len(known)} counts in {quoted(tensor.name)}, as its layer has in other tensors, found {len(found)}"
        raise SlotpoolError(text, where=printable(path), exit_code=REFUSED)


def _counts(file: GgufFile, tensor: Tensor) -> list[int]:
    n = max(tensor.ne)
    place = expert_place(tensor.name.removesuffix(_SUFFIX))
    is_row = sorted(tensor.ne)[:3] == [1, 1, 1]
    if tensor.type != "F32" or not is_row or not 1 < n <= MAX_EXPERTS or place is None or place.layer > MAX_LAYER:
        text = f"expected 2 to {MAX_EXPERTS} counts in {quoted(tensor.name)}, found {tensor.type} {list(tensor.ne)}"
        raise SlotpoolError(text, where=printable(file.path), exit_code=REFUSED)
    return [_count(value, tensor, file) for (value,) in _FLOAT.iter_unpack(_bytes(file, tensor, n * _FLOAT.size))]


def _bytes(file: GgufFile, tensor: Tensor, n_bytes: int) -> bytes:
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.pread(fd, n_bytes, tensor.offset) if tensor.offset < file.size else b""
        finally:
            os.close(fd)
    except OSError as error:
        raise SlotpoolError(f"cannot read the imatrix: {error.strerror}", where=printable(file.path)) from error
    if len(data) < n_bytes:
        text = f"the file ends inside {quoted(tensor.name)}"
        raise SlotpoolError(text, where=printable(file.path), exit_code=REFUSED)
    return data


def _count(value: float, tensor: Tensor, file: GgufFile) -> int:
    if not math.isfinite(value) or not 0 <= value <= MAX_ROWS:
        text = f"expected counts from 0 to {MAX_ROWS} in {quoted(tensor.name)}, found {value:g}"
        raise SlotpoolError(text, where=printable(file.path), exit_code=REFUSED)
    return round(value)


def _facts(file: GgufFile) -> Facts:
    data = file.metadata.get("imatrix.datasets")
    first = str(data[0]) if isinstance(data, tuple) and data else ""
    return Facts(source=f"imatrix {first}".strip()[:200])


def _head(path: str | os.PathLike[str], n_bytes: int) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(n_bytes)
    except OSError:
        return b""
