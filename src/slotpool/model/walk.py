"""Walks the header of one GGUF file and takes down its facts and its damage.

This is our own walker because `gguf.GGUFReader` is written for whole files: it maps the file, loops over counts it has not
checked (2^60 keys are 2^60 turns), makes numpy arrays and Python lists of everything, and answers a bad file with whatever
exception comes first. Here every count and length is checked against the file's size before it is used, and what llama.cpp
would refuse becomes a problem in words. Does not read weights, and does not compare tensors or files (see `damage`).
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gguf.constants import GGUF_DEFAULT_ALIGNMENT, GGUF_VERSION, Keys

from slotpool.errors import SlotpoolError, printable, quoted
from slotpool.model.cursor import Cursor, HeaderError
from slotpool.model.facts import GgufFile, Tensor, Value
from slotpool.model.findings import Findings
from slotpool.model.tensor_types import TENSOR_TYPES
from slotpool.model.values import Skipped, ValueReader, decode, read_name

MAX_KEYS = 1 << 14
MAX_TENSORS = 1 << 16
"""Real files have some hundred keys and tensors, the layout of 2023 some ten thousand: more is a hostile count."""

_DEFAULT_ALIGNMENT = int(GGUF_DEFAULT_ALIGNMENT)
_MAX_DIMS = 4
_MAX_TENSOR_NAME = 63
_MAX_ELEMENTS = 2**63 - 1
_OLDEST_VERSION = 2

_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive, such as a PyTorch checkpoint",
    b"vers": "perhaps a Git LFS pointer: the download brought the pointer, not the file",
    b"<!DO": "a web page",
    b"<htm": "a web page",
    b"lmgg": "a GGML file of 2023",
    b"fmgg": "a GGMF file of 2023",
    b"tjgg": "a GGJT file of 2023",
    b"FUGG": "a GGUF file with its bytes swapped",
    b"": "an empty file",
}


class _RawTensor(NamedTuple):
    """A tensor as the header has it: type by number, offset from the start of the data section."""

    name: str
    type_id: int
    ne: tuple[int, int, int, int]
    offset: int


def read_gguf(path: str | bytes | os.PathLike[str], *, keep: Iterable[str] = ()) -> GgufFile:
    """The header of the file at `path`; `keep` names big arrays (`tokenizer.ggml.tokens`) to keep all the same.

    Raises SlotpoolError when the file cannot be opened or is not a GGUF of a version that llama.cpp reads. Damage does not
    raise: it is in `problems`. Memory and time are bounded whatever the file says.
    """
    where = Path(os.fsdecode(path))
    try:
        fd = _open(where)
        try:
            found = os.fstat(fd)
            walk = _Walk(where, Cursor(fd, found.st_size), frozenset(keep))
            return replace(walk.run(), mtime_ns=found.st_mtime_ns)
        finally:
            os.close(fd)
    except OSError as error:
        raise SlotpoolError(f"cannot read the model file: {error.strerror}", where=printable(where)) from error


def _open(path: Path) -> int:
    if "\0" in str(path):
        raise SlotpoolError("expected a path, found a zero byte in it", where=printable(path))
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        found = "a directory" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise SlotpoolError(f"expected a GGUF file, found {found}", where=printable(path), do="Name the .gguf file itself.")
    # a path that becomes a pipe between stat and open must not hang the open
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


class _Walk:
    """One walk over one file, from the magic to the last tensor."""

    def __init__(self, path: Path, cursor: Cursor, keep: frozenset[str]) -> None:
        self._path = path
        self._cursor = cursor
        self._values = ValueReader(cursor, keep)
        self._findings = Findings()
        self._metadata: dict[str, Value] = {}
        self._skipped: dict[str, int] = {}
        self._alignment = _DEFAULT_ALIGNMENT

    def run(self) -> GgufFile:
        """The facts. Raises SlotpoolError when this is no GGUF."""
        self._check_magic()
        version = 0
        try:
            version = self._version()
            tensors = self._header()
        except HeaderError as damage:
            self._findings.add("header", str(damage))
            return self._file(version, None)
        return self._file(version, tensors)

    def _file(self, version: int, tensors: tuple[Tensor, ...] | None) -> GgufFile:
        return GgufFile(
            path=self._path,
            size=self._cursor.size,
            version=version,
            alignment=self._alignment,
            data_offset=self._padded(self._cursor.pos),
            metadata=MappingProxyType(self._metadata),
            skipped=MappingProxyType(self._skipped),
            tensors=tensors or (),
            problems=self._findings.texts(),
            is_complete=tensors is not None,
        )

    def _check_magic(self) -> None:
        magic = self._cursor.take(min(4, self._cursor.size), "the magic")
        if magic != b"GGUF":
            found = _OTHER_FORMATS.get(magic, f'a file that begins with "{quoted(decode(magic))}"')
            raise SlotpoolError(f"expected a GGUF file, found {found}", where=printable(self._path), do="Give a .gguf model file.")

    def _version(self) -> int:
        version = self._cursor.number("<I", "the version")
        if _OLDEST_VERSION <= version <= GGUF_VERSION:
            return version
        # llama.cpp tells the byte order the same way
        found = "a big-endian GGUF" if version & 0xFFFF == 0 and version else f"GGUF version {version}"
        raise SlotpoolError(
            f"expected GGUF version {_OLDEST_VERSION} or {GGUF_VERSION}, found {found}",
            where=printable(self._path),
            do="Convert the original model again.",
        )

    def _header(self) -> tuple[Tensor, ...]:
        n_tensors = self._count("tensors", MAX_TENSORS)
        n_keys = self._count("metadata keys", MAX_KEYS)
        for index in range(n_keys):
            self._read_key(index, n_keys)
        self._alignment = self._read_alignment()
        raw = [self._read_tensor(index, n_tensors) for index in range(n_tensors)]
        start = self._padded(self._cursor.pos)
        return tuple(self._placed(tensor, start) for tensor in raw)

    def _padded(self, offset: int) -> int:
        return offset + -offset % self._alignment

    def _count(self, what: str, limit: int) -> int:
        count = self._cursor.number("<Q", f"the number of {what}")
        if count > limit:
            raise HeaderError(f"the header claims {count} {what}, expected at most {limit}: its counts are garbage")
        return count

    def _read_key(self, index: int, n_keys: int) -> None:
        what = f"metadata key {index + 1} of {n_keys}"
        key = read_name(self._cursor, what)
        value = self._values.read(key, f'the value of "{quoted(key)}" ({what})')
        if not key:
            self._findings.add("key", f"{what} has no name, which llama.cpp refuses")
        elif key in self._metadata or key in self._skipped:
            self._findings.add("key", f'the metadata key "{quoted(key)}" is there twice, which llama.cpp refuses')
        elif isinstance(value, Skipped):
            self._skipped[key] = value.count
        else:
            self._metadata[key] = value

    def _read_alignment(self) -> int:
        key: str = Keys.General.ALIGNMENT
        value = self._metadata.get(key, _DEFAULT_ALIGNMENT)
        if isinstance(value, int) and 0 < value < 2**32 and value & (value - 1) == 0:
            return int(value)
        self._findings.add("alignment", f'expected a power of two in {key}, found "{quoted(str(value))}"')
        return _DEFAULT_ALIGNMENT

    def _read_tensor(self, index: int, n_tensors: int) -> _RawTensor:
        what = f"the entry of tensor {index + 1} of {n_tensors}"
        name = read_name(self._cursor, what)
        n_dims = self._cursor.number("<I", what)
        if n_dims > _MAX_DIMS:
            raise HeaderError(f'tensor "{quoted(name)}" has {n_dims} dimensions, expected at most {_MAX_DIMS}')
        *dims, type_id, offset = struct.unpack(f"<{n_dims}QIQ", self._cursor.take(8 * n_dims + 12, what))
        ne = (*dims, *[1] * (_MAX_DIMS - n_dims))
        return _RawTensor(name, type_id, (ne[0], ne[1], ne[2], ne[3]), offset)

    def _placed(self, raw: _RawTensor, start: int) -> Tensor:
        if len(raw.name.encode()) > _MAX_TENSOR_NAME:
            self._findings.add("name", f'tensor "{quoted(raw.name)}" has a name of more than {_MAX_TENSOR_NAME} bytes')
        known = TENSOR_TYPES.get(raw.type_id)
        type_name = known.name if known else f"type {raw.type_id}"
        return Tensor(raw.name, type_name, raw.ne, start + raw.offset, self._n_bytes(raw))

    def _n_bytes(self, raw: _RawTensor) -> int:
        kind = TENSOR_TYPES.get(raw.type_id)
        if kind is None:
            self._findings.add("type", f"{quoted(raw.name)} has the unknown type {raw.type_id}, which llama.cpp cannot read")
        elif max(raw.ne) > _MAX_ELEMENTS or prod(raw.ne) > _MAX_ELEMENTS:
            self._findings.add("shape", f"{quoted(raw.name)} has the impossible shape {list(raw.ne)}")
        elif raw.ne[0] % kind.block:
            text = f"{quoted(raw.name)} has rows of {raw.ne[0]} elements, expected a multiple of {kind.block} for {kind.name}"
            self._findings.add("row", text)
        else:
            return prod(raw.ne) // kind.block * kind.block_bytes
        return 0
