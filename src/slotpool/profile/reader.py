"""Reads a profile file, which is hostile until checked: every count against the bytes that are there, every number against its bounds.

Little endian: the magic, u32 version, u32 bytes of the facts, u32 groups; the facts as JSON; of each group u32 layer, u32 experts of the
model's layer, u32 index of the pass, u32 entries, and entries of u32 expert, u64 rows, the hottest first; u32 CRC-32 of everything before.
Does not know the model the profile is for (`fit` does).
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zlib
from dataclasses import fields
from typing import Any

from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.profile.facts import MAX_ROWS, Profile, ProfiledGroup
from slotpool.trace import PASSES, Facts

MAGIC = b"SPROFIL\n"
VERSION = 1
HEADER = struct.Struct("<8sIII")
GROUP = struct.Struct("<IIII")
ENTRY = struct.Struct("<IQ")
CRC = struct.Struct("<I")

MAX_BYTES = 64 << 20
MAX_FACTS = 1 << 16
MAX_GROUPS = 1 << 12
MAX_LAYER = 1 << 16
MAX_EXPERTS = 1 << 16
_INT_FACTS = ("n_layer", "n_expert", "n_expert_used")


class DamageError(Exception):
    """The bytes are not what a writer wrote. The text says what is wrong."""


def is_profile(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like a profile; False for what cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """The profile at `path`. Raises SlotpoolError for what cannot be read, is no profile, or is damaged (exit code 1)."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SlotpoolError("expected a profile, found a directory, a device or a pipe", where=printable(path))
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SlotpoolError(f"cannot read the profile: {error.strerror}", where=printable(path)) from error
    try:
        return from_bytes(data)
    except DamageError as damage:
        raise SlotpoolError(str(damage), where=printable(path), exit_code=REFUSED) from damage


def from_bytes(data: bytes) -> Profile:
    """The profile in `data`. Raises DamageError."""
    if data[: len(MAGIC)] != MAGIC:
        raise DamageError("expected a slotpool profile, found a file that begins otherwise")
    if len(data) < HEADER.size + CRC.size:
        raise DamageError("the profile ends inside its header")
    _, version, n_facts, n_groups = HEADER.unpack_from(data)
    if version != VERSION:
        raise DamageError(f"expected a profile of version {VERSION}, found version {version}")
    if len(data) > MAX_BYTES:
        raise DamageError(f"expected a profile of at most {MAX_BYTES} bytes, found more")
    if zlib.crc32(data[: -CRC.size]) != CRC.unpack(data[-CRC.size :])[0]:
        raise DamageError("the checksum of the profile does not fit: it is damaged or cut")
    if n_facts > MAX_FACTS or n_groups > MAX_GROUPS:
        raise DamageError("the header of the profile has impossible numbers")
    reading = _Reading(data[: -CRC.size], HEADER.size)
    facts = _facts(reading.take(n_facts))
    groups = tuple(_group(reading) for _ in range(n_groups))
    if not reading.is_done:
        raise DamageError("there is more after the last group of the profile")
    places = [(group.layer, PASSES.index(group.pass_)) for group in groups]
    if places != sorted(set(places)):
        raise DamageError("the groups of the profile are not in order, or one is there twice")
    return Profile(facts, groups)


class _Reading:
    """A place in the bytes of a profile."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @property
    def is_done(self) -> bool:
        return self._at == len(self._data)

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > len(self._data) - self._at:
            raise DamageError("the profile ends too early")
        self._at += n_bytes
        return self._data[self._at - n_bytes : self._at]


def _facts(text: bytes) -> Facts:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamageError("the facts of the profile are no JSON") from error
    if not isinstance(found, dict):
        raise DamageError("the facts of the profile are no JSON object")
    values: dict[str, Any] = {}
    for field in fields(Facts):
        value = found.get(field.name, field.default)
        if type(value) is not (int if field.name in _INT_FACTS else str) or (isinstance(value, int) and not 0 <= value < 2**31):
            raise DamageError(f"the profile has an impossible {field.name}")
        values[field.name] = value
    return Facts(**values)


def _group(reading: _Reading) -> ProfiledGroup:
    layer, n_expert, pass_, n = GROUP.unpack(reading.take(GROUP.size))
    if layer > MAX_LAYER or not 0 < n <= n_expert <= MAX_EXPERTS or pass_ >= len(PASSES):
        raise DamageError("a group of the profile has impossible numbers")
    entries = list(ENTRY.iter_unpack(reading.take(n * ENTRY.size)))
    experts, rows = tuple(one[0] for one in entries), tuple(one[1] for one in entries)
    if max(experts) >= n_expert or len(set(experts)) < n:
        raise DamageError(f"layer {layer} of the profile has an expert out of range, or one twice")
    if min(rows) < 1 or max(rows) > MAX_ROWS or list(rows) != sorted(rows, reverse=True):
        raise DamageError(f"layer {layer} of the profile is not ordered by heat")
    return ProfiledGroup(layer, PASSES[pass_], n_expert, experts, rows)
