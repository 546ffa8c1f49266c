"""What a record must hold: its fields, their kinds and bounds, version 1. Reads and writes no file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

VERSION = 1
_MAX_TEXT = 4096
_MAX_DEVICES = 256
_MAX_DEPTH = 64
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_HEX = re.compile(r"[0-9a-f]{64}")

Facts: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """One record, checked. `document` is the whole of it as it was written; the others are its fields.

    `date` is ISO 8601 in UTC, a day at least. `commit`, `load_average` and `model` are None where there is none. Sizes are bytes.
    `flags` are the options that mattered, `results` is the verb's own document.
    """

    kind: str
    date: str
    commit: str | None
    uncommitted_changes: bool
    slotpool: str
    engine: Facts
    machine: Facts
    load_average: float | None
    devices: tuple[Facts, ...]
    model: Facts | None
    flags: Facts
    results: Facts
    document: Facts = field(repr=False, compare=False)


class FieldError(ValueError):
    """A field that is missing or not of its kind: `field`, what was expected, what was found."""

    def __init__(self, name: str, expected: str, found: Any) -> None:
        super().__init__(f"expected {expected} in {name}, found {_shown(found)}")


def check(document: Any) -> Record:
    """The record in `document`, parsed JSON. FieldError names the first field that is not as it must be; unknown ones are welcome."""
    fields = _object("the record", document)
    version = fields.get("slotpool_record")
    if isinstance(version, bool) or version != VERSION:
        raise FieldError("slotpool_record", f"version {VERSION}", version)
    _check_finite("the record", document, _MAX_DEPTH)
    return Record(
        kind=_matching("kind", fields.get("kind"), _KIND, "a name such as bench"),
        date=_date(fields.get("date")),
        commit=_optional_text("commit", fields.get("commit")),
        uncommitted_changes=_bool("uncommitted_changes", fields.get("uncommitted_changes")),
        slotpool=_text("slotpool", fields.get("slotpool")),
        engine=_engine(fields.get("engine")),
        machine=_object("machine", fields.get("machine")),
        load_average=_load(fields.get("load_average")),
        devices=_devices(fields.get("devices")),
        model=_model(fields.get("model")),
        flags=_object("flags", fields.get("flags")),
        results=_object("results", fields.get("results")),
        document=fields,
    )


def _engine(found: Any) -> Facts:
    engine = _object("engine", found)
    _text("engine.package", engine.get("package"))
    for name in ("llama_cpp", "build_flags", "abi"):
        _optional_text(f"engine.{name}", engine.get(name))
    return engine


def _devices(found: Any) -> tuple[Facts, ...]:
    if not isinstance(found, list) or len(found) > _MAX_DEVICES:
        raise FieldError("devices", f"a list of at most {_MAX_DEVICES}", found)
    for index, one in enumerate(found):
        device = _object(f"devices[{index}]", one)
        _text(f"devices[{index}].name", device.get("name"))
        _text(f"devices[{index}].description", device.get("description"))
        _count(f"devices[{index}].memory_bytes", device.get("memory_bytes"))
        _optional_text(f"devices[{index}].driver", device.get("driver"))
    return tuple(found)


def _model(found: Any) -> Facts | None:
    if found is None:
        return None
    model = _object("model", found)
    _text("model.name", model.get("name"))
    _count("model.bytes", model.get("bytes"))
    for name in ("sha256", "fingerprint"):
        _matching(f"model.{name}", model.get(name), _HEX, "64 hexadecimal digits")
    return model


def _date(found: Any) -> str:
    text = _text("date", found)
    try:
        date = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise FieldError("date", "ISO 8601 in UTC", found) from None
    offset = date.utcoffset()
    if len(text) > len("2026-11-30") and (offset is None or offset.total_seconds()):
        raise FieldError("date", "ISO 8601 in UTC", found)
    return text


def _load(found: Any) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or found < 0:
        raise FieldError("load_average", "a number or null", found)
    return float(found)


def _object(name: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise FieldError(name, "an object", found)
    return found


def _text(name: str, found: Any) -> str:
    if not isinstance(found, str) or len(found) > _MAX_TEXT:
        raise FieldError(name, f"a text of at most {_MAX_TEXT} characters", found)
    return found


def _optional_text(name: str, found: Any) -> str | None:
    return None if found is None else _text(name, found)


def _matching(name: str, found: Any, pattern: re.Pattern[str], expected: str) -> str:
    if not isinstance(found, str) or not pattern.fullmatch(found):
        raise FieldError(name, expected, found)
    return found


def _bool(name: str, found: Any) -> bool:
    if not isinstance(found, bool):
        raise FieldError(name, "true or false", found)
    return found


def _count(name: str, found: Any) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 2**63:
        raise FieldError(name, "a number of bytes", found)
    return found


def _check_finite(name: str, found: Any, depth: int) -> None:
    """What no reader of JSON should have to meet: NaN, infinities, numbers beyond 64 bits, nesting without end."""
    if not depth:
        raise FieldError(name, f"at most {_MAX_DEPTH} levels", found)
    if isinstance(found, float) and not math.isfinite(found):
        raise FieldError(name, "a finite number", found)
    if isinstance(found, int) and abs(found) >= 2**64:
        raise FieldError(name, "a number of at most 64 bits", found)
    parts = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list | tuple) else ()
    for key, value in parts:
        _check_finite(str(key)[:64], value, depth - 1)


def _shown(found: Any) -> str:
    if found is None:
        return "nothing"
    if isinstance(found, dict | list | tuple):
        return "an object" if isinstance(found, dict) else f"a list of {len(found)}"
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) >= 2**64:
        return "a longer one"
    text = ascii(found)
    return text if len(text) <= 80 else text[:77] + "..."
