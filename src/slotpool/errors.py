"""The one exception for everything a user can cause, in the house style: expected, found, where, what to do.

Does not print and does not exit: `slotpool.cli` does both, in one place.
"""

from __future__ import annotations

import difflib
import os
import unicodedata
from collections.abc import Iterable

REFUSED = 1
"""Exit code: the tool says no (no-go, drift found, damaged file, nothing pooled)."""
MISUSED = 2
"""Exit code: wrong usage or input."""

_MAX_LINES = 4
_MAX_QUOTED = 120


class SlotpoolError(Exception):
    """Something the user can cause and can change.

    `message` says what was expected and what was found, `where` the place (a path, an option), `do` what to do about it.
    `exit_code` is REFUSED (1) or MISUSED (2). `str()` of it is what the user reads: at most four lines.
    """

    def __init__(self, message: str, *, where: str = "", do: str = "", exit_code: int = MISUSED) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.do = do
        self.exit_code = exit_code

    def __str__(self) -> str:
        place = f" (at {self.where})" if self.where else ""
        advice = f". {self.do}" if self.do else ""
        return "\n".join(f"{self.message}{place}{advice}".splitlines()[:_MAX_LINES])


def unknown(kind: str, value: str, valid: Iterable[str], *, where: str = "") -> SlotpoolError:
    """The error for a name that is not one of `valid`: quotes it, lists the valid ones, points at the nearest."""
    names = list(valid)
    close = nearest(value, names)
    return SlotpoolError(
        f'unknown {kind} "{quoted(value)}" (valid: {", ".join(names) or "none"})',
        where=where,
        do=f"Did you mean {close}?" if close else "",
    )


def nearest(value: str, valid: Iterable[str]) -> str:
    """The valid name that looks most like `value`; empty when none is near."""
    by_fold = {name.casefold(): name for name in valid}
    close = difflib.get_close_matches(value.casefold(), by_fold, n=1)
    return by_fold[close[0]] if close else ""


def quoted(value: str) -> str:
    """`value` printable and cut to a length that fits a message."""
    text = printable(value)
    return text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 3] + "..."


def printable(text: str | os.PathLike[str]) -> str:
    """`text` on one line and safe for any terminal: control characters, line ends and bytes that are not UTF-8 are escaped."""
    known = os.fspath(text)
    if known.isascii() and known.isprintable():
        return known
    known = known.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(char if _is_safe(char) else char.encode("unicode_escape").decode("ascii") for char in known)


def _is_safe(char: str) -> bool:
    # every kind of space may stand in a file name; what turns or hides the text around it (Cf) may not
    return char.isprintable() or unicodedata.category(char) == "Zs"
