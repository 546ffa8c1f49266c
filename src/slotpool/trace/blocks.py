"""The trace file's bytes: a header, then blocks that say how long they are and carry a checksum. Numbers are little-endian.

Knows bytes only: what stands in a block is `sections`, whole files are `writer` and `reader`. docs/design/trace.md has the tables.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, fields
from typing import Any, BinaryIO, NamedTuple

from slotpool.trace.facts import Facts

MAGIC = b"SPTRACE\n"
VERSION = 1
GROUP, EVENTS, SEGMENT, END = b"GRUP", b"EVTS", b"SEGM", b"END."
STORED, DEFLATED = 0, 1
"""How a block's payload lies in the file."""

MAX_HEADER = 1 << 20
MAX_PAYLOAD = 1 << 28
"""Bytes of a block's payload, unpacked: a writer ends a block long before."""

_HEADER = struct.Struct("<8sII")  # magic, version, bytes of the facts
_FRAME = struct.Struct("<4sIII")  # kind, codec, bytes in the file, bytes unpacked
_CRC = struct.Struct("<I")
_LEVEL = 1  # higher levels find little more in ids and cost several times the time
_INT_FACTS = ("n_layer", "n_expert", "n_expert_used")


class DamageError(Exception):
    """The bytes are not what a writer wrote. The text says what is wrong."""


class CutError(DamageError):
    """The file ends inside a block: its writer was stopped, or a copy was."""


class Block(NamedTuple):
    """One block: its kind and its payload, unpacked."""

    kind: bytes
    payload: bytes


def header_bytes(facts: Facts) -> bytes:
    """The first bytes of a trace file."""
    text = json.dumps(asdict(facts)).encode()
    head = _HEADER.pack(MAGIC, VERSION, len(text)) + text
    return head + _CRC.pack(zlib.crc32(head))


def read_header(file: BinaryIO) -> Facts:
    """Reads the header. Raises DamageError, with the version first where that is what does not fit."""
    head = file.read(_HEADER.size)
    if len(head) < len(MAGIC) or head[: len(MAGIC)] != MAGIC:
        raise DamageError("expected a slotpool trace, found a file that begins otherwise")
    if len(head) < _HEADER.size:
        raise CutError("the file ends inside its header")
    _, version, n_bytes = _HEADER.unpack(head)
    if version != VERSION:
        raise DamageError(f"expected a trace of version {VERSION}, found version {version}")
    if n_bytes > MAX_HEADER:
        raise DamageError(f"the header claims {n_bytes} bytes, expected at most {MAX_HEADER}")
    text, crc = file.read(n_bytes), file.read(_CRC.size)
    if len(text) < n_bytes or len(crc) < _CRC.size:
        raise CutError("the file ends inside its header")
    if _CRC.unpack(crc)[0] != zlib.crc32(head + text):
        raise DamageError("the checksum of the header does not fit")
    return _facts(text)


def _facts(text: bytes) -> Facts:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamageError("the header is no JSON") from error
    if not isinstance(found, dict):
        raise DamageError("the header is no JSON object")
    values: dict[str, Any] = {}
    for field in fields(Facts):
        value = found.get(field.name, field.default)
        wanted = int if field.name in _INT_FACTS else str
        if type(value) is not wanted or (isinstance(value, int) and not 0 <= value < 2**31):
            raise DamageError(f"the header has an impossible {field.name}")
        values[field.name] = value
    return Facts(**values)


def block_bytes(kind: bytes, payload: bytes) -> bytes:
    """A block as it lies in the file, packed where that makes it smaller."""
    packed = zlib.compress(payload, _LEVEL)
    codec, body = (DEFLATED, packed) if len(packed) < len(payload) else (STORED, payload)
    frame = _FRAME.pack(kind, codec, len(body), len(payload))
    return frame + _CRC.pack(zlib.crc32(body, zlib.crc32(frame))) + body


def read_block(file: BinaryIO) -> Block | None:
    """The next block, None at the end of the file. Raises CutError or DamageError."""
    frame = file.read(_FRAME.size + _CRC.size)
    if not frame:
        return None
    if len(frame) < _FRAME.size + _CRC.size:
        raise CutError("the file ends inside the frame of a block")
    kind, codec, n_stored, n_payload = _FRAME.unpack(frame[: _FRAME.size])
    if kind not in (GROUP, EVENTS, SEGMENT, END) or codec not in (STORED, DEFLATED):
        raise DamageError("a block is of no known kind")
    if max(n_stored, n_payload) > MAX_PAYLOAD:
        raise DamageError(f"a block claims {max(n_stored, n_payload)} bytes, expected at most {MAX_PAYLOAD}")
    body = file.read(n_stored)
    if len(body) < n_stored:
        raise CutError("the file ends inside a block")
    if _CRC.unpack(frame[_FRAME.size :])[0] != zlib.crc32(body, zlib.crc32(frame[: _FRAME.size])):
        raise DamageError("the checksum of a block does not fit")
    return Block(kind, _unpacked(codec, body, n_payload))


def _unpacked(codec: int, body: bytes, n_payload: int) -> bytes:
    payload = body if codec == STORED else _inflated(body, n_payload)
    if len(payload) != n_payload:
        raise DamageError(f"a block has {len(payload)} bytes, expected {n_payload}")
    return payload


def _inflated(body: bytes, n_payload: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # a limit of 0 would be none; one byte more than promised shows that there is more
        payload = inflater.decompress(body, n_payload + 1)
    except zlib.error as error:
        raise DamageError("a block cannot be unpacked") from error
    if not inflater.eof or inflater.unused_data:
        raise DamageError("a block is longer or shorter than it says")
    return payload
