"""Finds out what a file says of how hot experts are: a profile, a trace, heat maps of other tools, or an imatrix.

Told by the content, never by the name.
"""

from __future__ import annotations

import os

from slotpool.errors import SlotpoolError, printable
from slotpool.profile import imatrix
from slotpool.profile.facts import Profile, of_heat
from slotpool.profile.reader import is_profile, read_profile
from slotpool.trace import Heat, heat_of, load


def read(path: str | os.PathLike[str]) -> Profile:
    """The profile in, or of, the file at `path`. Raises SlotpoolError for a damaged file, and one that says nothing of experts."""
    if is_profile(path):
        return read_profile(path)
    if imatrix.is_gguf(path):
        return imatrix.read_imatrix(path)
    if imatrix.is_old_imatrix(path):
        raise SlotpoolError(
            "expected an imatrix with counts of experts, found the format before GGUF, which has none",
            where=printable(path),
            do="Convert or record it with a current llama-imatrix (-o NAME.gguf).",
        )
    found = load(path)
    heat = found if isinstance(found, Heat) else heat_of(found)
    made = of_heat(heat.facts, {place: [int(n) for n in rows] for place, rows in heat.counts.items()})
    if not made.groups:
        raise SlotpoolError("expected a trace with events, found none", where=printable(path))
    return made
