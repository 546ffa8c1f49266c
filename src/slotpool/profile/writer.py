"""Writes a profile file, whole or not at all: beside its place first, then moved there.

Overwrites a profile of the same model, which is what the next session is for, and nothing else.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from slotpool.errors import SlotpoolError, printable
from slotpool.profile.facts import Profile
from slotpool.profile.reader import CRC, ENTRY, GROUP, HEADER, MAGIC, VERSION, is_profile, read_profile
from slotpool.trace import PASSES


def to_bytes(profile: Profile) -> bytes:
    """The profile as it lies in its file."""
    facts = json.dumps(asdict(profile.facts)).encode()
    parts = [HEADER.pack(MAGIC, VERSION, len(facts), len(profile.groups)), facts]
    for group in profile.groups:
        parts.append(GROUP.pack(group.layer, group.n_expert, PASSES.index(group.pass_), len(group.experts)))
        parts += [ENTRY.pack(expert, rows) for expert, rows in zip(group.experts, group.rows, strict=True)]
    data = b"".join(parts)
    return data + CRC.pack(zlib.crc32(data))


def write(path: str | os.PathLike[str], profile: Profile) -> None:
    """Writes `profile` to `path`; one of the same model that is there goes. Raises SlotpoolError as `check_target`, and for a full disk."""
    check_target(path, profile.facts.fingerprint)
    try:
        with tempfile.NamedTemporaryFile(dir=Path(path).parent, prefix=".slotpool-", delete=False) as file:
            name = file.name
            file.write(to_bytes(profile))
        _move(name, path)
    except OSError as error:
        raise SlotpoolError(f"cannot write the profile: {error.strerror}", where=printable(path)) from error


def _move(name: str, path: str | os.PathLike[str]) -> None:
    try:
        os.chmod(name, 0o644 & ~_umask())
        os.replace(name, path)
    except OSError:
        with suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def check_target(path: str | os.PathLike[str], fingerprint: str) -> None:
    """SlotpoolError when a profile of the model of `fingerprint` cannot be written there: no such folder, or another thing in its place."""
    place = Path(path)
    if not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise SlotpoolError("expected a folder for the profile that can be written to, found none", where=printable(place.parent))
    if not os.path.lexists(place):
        return
    other = "a file that is no profile"
    if is_profile(place):
        if read_profile(place).facts.fingerprint == fingerprint:
            return
        other = "the profile of another model"
    raise SlotpoolError(f"expected a new file, or a profile of this model, found {other}", where=printable(path), do="Choose another name.")
