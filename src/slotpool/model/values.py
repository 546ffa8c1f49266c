"""Reads metadata values of a GGUF header: scalars, strings, arrays; big ones are stepped over.

Does not know what any key means.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gguf.constants import GGUFValueType

from slotpool.model.cursor import Cursor, HeaderError
from slotpool.model.facts import Scalar, Value

MAX_ARRAY = 1 << 12
"""Elements of an array that is kept without being asked for. An array per layer has a few hundred."""
MAX_ASKED = 1 << 21
"""Elements of an array that is kept when asked for by its key."""
MAX_STRINGS = 1 << 22
"""Strings of one file that are stepped over, one by one, before its counts are called hostile."""
MAX_KEPT_BYTES = 1 << 20
"""Bytes of one string or array that is kept without being asked for."""
MAX_HEADER_BYTES = 1 << 25
"""Bytes of all values of one file that are kept. A number counts eight: that is what it takes at least in Python."""
MAX_NAME = 1 << 10
"""Bytes of a name or key. llama.cpp takes 63 bytes for a tensor name."""

_FORMS: dict[int, str] = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}
_STRING, _ARRAY = int(GGUFValueType.STRING), int(GGUFValueType.ARRAY)


@dataclass(frozen=True)
class Skipped:
    """Stands for a value that is too big to keep, with its number of elements, or of bytes for a string."""

    count: int


def decode(raw: bytes) -> str:
    """A string of the file; bytes that are not UTF-8 stay visible as `\\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def read_name(cursor: Cursor, what: str) -> str:
    """A tensor name or a key: a length of 8 bytes and so many bytes."""
    length = cursor.number("<Q", what)
    if length > MAX_NAME:
        raise HeaderError(f"{what} has a name of {length} bytes, expected at most {MAX_NAME}: the header is garbage from there on")
    return decode(cursor.take(length, what))


class ValueReader:
    """Reads the values of one file through its cursor and counts what they cost, so that no file costs much."""

    def __init__(self, cursor: Cursor, keep: frozenset[str]) -> None:
        self._cursor = cursor
        self._keep = keep
        self._n_strings_left = MAX_STRINGS
        self._n_bytes_left = MAX_HEADER_BYTES

    def read(self, key: str, what: str) -> Value | Skipped:
        """The next value, type number included. Raises HeaderError for what llama.cpp refuses, arrays of arrays included."""
        kind = self._cursor.number("<I", what)
        if kind == _ARRAY:
            return self._array(key, what)
        if kind == _STRING:
            return self._string(key, what)
        (value,) = self._numbers(kind, 1, what)
        return value

    def _string(self, key: str, what: str) -> Value | Skipped:
        start, length = self._cursor.pos, self._cursor.number("<Q", what)
        self._cursor.skip(length, what)
        if not self._may_keep(key, 0, length):
            return Skipped(length)
        self._cursor.pos = start + 8
        return decode(self._cursor.take(length, what))

    def _array(self, key: str, what: str) -> Value | Skipped:
        kind, count = self._cursor.number("<I", what), self._cursor.number("<Q", what)
        start = self._cursor.pos
        self._skip_array(kind, count, what)
        if not self._may_keep(key, count, self._cursor.pos - start):
            return Skipped(count)
        n_bytes, self._cursor.pos = self._cursor.pos - start, start
        return _strings(self._cursor.take(n_bytes, what)) if kind == _STRING else self._numbers(kind, count, what)

    def _skip_array(self, kind: int, count: int, what: str) -> None:
        if kind == _ARRAY:
            raise HeaderError(f"{what} is an array of arrays, which llama.cpp cannot read")
        if kind != _STRING:
            self._cursor.skip(count * struct.calcsize(self._form(kind, what)), what)
            return
        # 8 bytes is the shortest string: a count that cannot fit is told at once, not after a long walk
        if count > self._n_strings_left or count * 8 > self._cursor.size - self._cursor.pos:
            raise HeaderError(f"{what} claims {count} strings, more than the file can hold or any vocabulary has")
        self._n_strings_left -= count
        self._cursor.skip_strings(count, what)

    def _may_keep(self, key: str, count: int, n_bytes: int) -> bool:
        is_asked = key in self._keep
        if count > (MAX_ASKED if is_asked else MAX_ARRAY) or n_bytes > (MAX_HEADER_BYTES if is_asked else MAX_KEPT_BYTES):
            return False
        cost = max(n_bytes, count * 8)
        if cost > self._n_bytes_left:
            return False
        self._n_bytes_left -= cost
        return True

    def _numbers(self, kind: int, count: int, what: str) -> tuple[Scalar, ...]:
        form = self._form(kind, what)
        return struct.unpack(f"<{count}{form}", self._cursor.take(count * struct.calcsize(form), what))

    def _form(self, kind: int, what: str) -> str:
        form = _FORMS.get(kind)
        if form is None:
            raise HeaderError(f"{what} has the unknown value type {kind} (valid: 0 to {max(GGUFValueType)})")
        return form


def _strings(raw: bytes) -> tuple[str, ...]:
    """The strings of an array that was walked before: its lengths are known to be good."""
    texts, at = [], 0
    while at < len(raw):
        start = at + 8
        at = start + int.from_bytes(raw[at:start], "little")
        texts.append(decode(raw[start:at]))
    return tuple(texts)
