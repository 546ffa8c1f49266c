"""The file in the user's cache directory that keeps the speeds of a machine: JSON, one per machine, replaced as a whole.

A file that is damaged, of another version or of another machine counts as none; writing never fails a command.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from slotpool.errors import printable
from slotpool.speeds.facts import UNITS, Speed, Speeds

VERSION = 1
_LARGEST = 4 << 20
_MOST = 10_000


def cache_path(identity: str) -> Path:
    """Where the speeds of the machine `identity` are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    folder = Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()
    return folder / "slotpool" / f"speeds-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def recall(identity: str) -> tuple[Speeds, str]:
    """The speeds of a machine, empty where there are none, and why a file that is there is not used."""
    path = cache_path(identity)
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return Speeds(identity), ""
    except OSError as error:
        return Speeds(identity), f"cannot read {printable(path)}: {error.strerror}"
    try:
        return _checked(json.loads(text) if len(text) <= _LARGEST else None, identity), ""
    except (ValueError, TypeError, KeyError, RecursionError):
        return Speeds(identity), f"{printable(path)} is damaged or of another version: measured again"


def keep(speeds: Speeds) -> str:
    """Writes the file; why it cannot be written, empty where it was."""
    path = cache_path(speeds.identity)
    document = {"version": VERSION, "identity": speeds.identity, "speeds": [asdict(speed) for speed in speeds.all]}
    made = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=".speeds-")
        with os.fdopen(handle, "w") as file:
            json.dump(document, file, indent=1, allow_nan=False)
        os.replace(made, path)
    except OSError as error:
        if made and os.path.exists(made):
            os.unlink(made)
        return f"cannot keep the measured speeds in {printable(path)}: {error.strerror}"
    return ""


def _checked(document: Any, identity: str) -> Speeds:
    """ValueError, TypeError or KeyError for anything that `keep` would not have written for this machine."""
    if document["version"] != VERSION or document["identity"] != identity or len(document["speeds"]) > _MOST:
        raise ValueError
    return Speeds(identity, tuple(_speed(**one) for one in document["speeds"]))


def _speed(**values: Any) -> Speed:
    kinds: dict[str, tuple[type, ...]] = {"str": (str,), "float": (int, float), "int": (int,)}
    for field in fields(Speed):
        value = values[field.name]
        if isinstance(value, bool) or not isinstance(value, kinds[str(field.type)]):
            raise TypeError
    speed = Speed(**values)
    numbers = (speed.low, speed.median, speed.high)
    if speed.unit not in UNITS or not all(math.isfinite(one) and one > 0 for one in numbers) or list(numbers) != sorted(numbers):
        raise ValueError
    if speed.n_samples < 1 or not (math.isfinite(speed.load) and speed.load >= 0):
        raise ValueError
    return speed
