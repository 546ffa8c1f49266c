"""Byte sizes as people write them (`20GiB`, `512MiB`, `1.5GiB`, `4096`) and as slotpool shows them.

Does not round what is stored or asked for: only what is shown.
"""

from __future__ import annotations

import re
from fractions import Fraction

from slotpool.errors import SlotpoolError, quoted

UNITS = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
"""Bytes per unit. The binary ones come first: they are what slotpool shows."""

_BINARY = ("TiB", "GiB", "MiB", "KiB")
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)[ ]?([A-Za-z]{0,3})")
_LARGEST = 2**63 - 1


def parse_bytes(text: str, *, where: str = "") -> int:
    """Bytes meant by `text`: a number, or a number and a unit of UNITS in any case; a fraction of a byte is dropped.

    Raises SlotpoolError for anything else, negative sizes and more than 2^63 - 1 bytes included. `where` names the option.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise _not_a_size(text, where)
    unit_bytes = _unit_bytes(match[2], text, where)
    size = int(Fraction(match[1]) * unit_bytes)
    if size > _LARGEST:
        raise _not_a_size(text, where)
    return size


def format_bytes(n_bytes: int) -> str:
    """`n_bytes` in the largest binary unit that keeps it at one or more, with two decimals at most: 21474836480 -> `20GiB`."""
    if n_bytes < 0:
        return "-" + format_bytes(-n_bytes)
    for unit in _BINARY:
        # 1023.999 MiB is shown as 1GiB, not as 1024MiB
        if round(n_bytes / UNITS[unit], 2) >= 1:
            return f"{n_bytes / UNITS[unit]:.2f}".rstrip("0").rstrip(".") + unit
    return f"{n_bytes}B"


def _unit_bytes(unit: str, text: str, where: str) -> int:
    known = {name.casefold(): size for name, size in UNITS.items()} | {"": 1}
    if unit.casefold() in known:
        return known[unit.casefold()]
    letter = unit[:1].upper()
    do = f"Write {letter}iB (powers of 1024) or {letter}B (powers of 1000)." if len(unit) == 1 and letter in "KMGT" else ""
    raise SlotpoolError(f'unknown unit "{unit}" in the size "{quoted(text)}" (valid: {", ".join(UNITS)})', where=where, do=do)


def _not_a_size(text: str, where: str) -> SlotpoolError:
    return SlotpoolError(f'expected a size such as 20GiB or 512MiB, found "{quoted(text)}"', where=where)
