"""Reads forward through a file that may be hostile: no step leaves the file, no buffer is sized by an unchecked number.

Reads with pread and not through a map, since touching a map of a file that shrinks kills the process. Knows no GGUF.
"""

from __future__ import annotations

import os
import struct

_CHUNK = 1 << 20
_LENGTH = struct.Struct("<Q")


class HeaderError(Exception):
    """The header cannot be walked any further. The text is the problem as the user reads it."""


class Cursor:
    """A position in the first `size` bytes of the open file `fd`. Every step says `what` it reads, for the message."""

    def __init__(self, fd: int, size: int) -> None:
        self.size = size
        self.pos = 0
        self._fd = fd
        self._chunk = b""
        self._chunk_pos = 0

    def skip(self, n_bytes: int, what: str) -> None:
        """Moves over `n_bytes`. Raises HeaderError when the file ends before."""
        n_missing = n_bytes - (self.size - self.pos)
        if n_missing > 0:
            raise HeaderError(f"truncated: the file ends at byte {self.size} inside its header, in {what} ({n_missing} bytes missing)")
        self.pos += n_bytes

    def take(self, n_bytes: int, what: str) -> bytes:
        """The next `n_bytes`. The caller limits `n_bytes` to what it wants in memory; the file's end is checked here."""
        start = self.pos
        self.skip(n_bytes, what)
        at = start - self._chunk_pos
        if at < 0 or at + n_bytes > len(self._chunk):
            self._load(start, n_bytes)
            at = 0
        return self._chunk[at : at + n_bytes]

    def number(self, form: str, what: str) -> int:
        """The next integer, `form` as in the struct module."""
        (value,) = struct.unpack(form, self.take(struct.calcsize(form), what))
        return int(value)

    def skip_strings(self, count: int, what: str) -> None:
        """Moves over `count` strings, each of them a length of 8 bytes and its bytes. The caller limits `count`."""
        for _ in range(count):
            # the plain path costs a call per string; a vocabulary has 10^5 of them
            at = self.pos - self._chunk_pos
            if at >= 0 and at + 8 <= len(self._chunk) and self.pos + 8 <= self.size:
                (length,) = _LENGTH.unpack_from(self._chunk, at)
                self.pos += 8
            else:
                length = self.number("<Q", what)
            if length > self.size - self.pos:
                self.skip(length, what)
            self.pos += length

    def _load(self, start: int, n_bytes: int) -> None:
        end = min(start + max(n_bytes, _CHUNK), self.size)
        chunk = bytearray()
        while piece := os.pread(self._fd, end - start - len(chunk), start + len(chunk)):
            chunk += piece
        self._chunk, self._chunk_pos = bytes(chunk), start
        if len(chunk) < n_bytes:
            raise HeaderError("the file became shorter while it was read. Let the download or copy finish first")
