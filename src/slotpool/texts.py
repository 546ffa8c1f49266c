"""Texts that users give: read up to a bound, and UTF-8, since other bytes may end the process in the tokenizer. Tokenizes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from slotpool.errors import SlotpoolError, printable

MAX_BYTES = 64 << 20


def read_text(path: Path) -> bytes:
    """The bytes of the file, or of stdin for `-`. SlotpoolError for a file that cannot be read, is larger than MAX_BYTES, or has something
    else than UTF-8."""
    place = printable(path)
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SlotpoolError(f"cannot read the text: {error.strerror}", where=place) from error
    if len(content) > MAX_BYTES:
        raise SlotpoolError(f"expected a text of at most {MAX_BYTES} bytes, found a longer one", where=place)
    return checked(content, place)


def checked(content: bytes, where: str) -> bytes:
    """`content`. SlotpoolError where it is not UTF-8."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SlotpoolError(f"expected text in UTF-8, found something else from byte {error.start} on", where=where) from error
    return content
