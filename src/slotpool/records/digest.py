"""SHA-256 of model files, kept in the user's cache by path, size and time of change: a model of 100 GB is read once.

A cache that is damaged counts as none, and writing it never fails a command.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slotpool.errors import SlotpoolError, printable
from slotpool.speeds.cache import cache_path

_VERSION = 1
_MOST = 1000
_LARGEST = 4 << 20
_CHUNK = 8 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


def sha256_of(paths: Sequence[Path]) -> str:
    """Of one file its SHA-256, hexadecimal; of several the SHA-256 over those of each, in hexadecimal, one after the other.

    Raises SlotpoolError for a file that cannot be read.
    """
    digests = [_of_file(path) for path in paths]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _of_file(path: Path) -> str:
    try:
        key = _key(path)
        known = _recall()
        found = known.get(key)
        if found is None:
            found = _hashed(path)
            if _key(path) == key:  # else it was changed while it was read
                _keep({**dict(list(known.items())[-_MOST + 1 :]), key: found})
        return found
    except OSError as error:
        raise SlotpoolError(f"cannot read the model file: {error.strerror}", where=printable(path)) from error


def _key(path: Path) -> str:
    facts = path.stat()
    return json.dumps([os.fsdecode(path.resolve()), facts.st_size, facts.st_mtime_ns])


def _hashed(path: Path) -> str:
    made = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            made.update(chunk)
    return made.hexdigest()


def _file() -> Path:
    return cache_path("").with_name("sha256.json")


def _recall() -> dict[str, str]:
    try:
        with _file().open("rb") as file:
            text = file.read(_LARGEST + 1)
        return _checked(json.loads(text) if len(text) <= _LARGEST else None)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def _checked(document: Any) -> dict[str, str]:
    digests = document["digests"]
    if document["version"] != _VERSION or not isinstance(digests, dict):
        raise ValueError
    if not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in digests.values()):
        raise ValueError
    return digests


def _keep(digests: dict[str, str]) -> None:
    made = ""
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=_file().parent, prefix=".sha256-")
        with os.fdopen(handle, "w") as file:
            json.dump({"version": _VERSION, "digests": digests}, file)
        os.replace(made, _file())
    except OSError:
        if made and os.path.exists(made):
            os.unlink(made)
