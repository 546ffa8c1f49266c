"""Files of records: one JSON object a line, appended whole, read with bounds. Interprets no record beyond its fields."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from slotpool.errors import SlotpoolError, printable, quoted
from slotpool.records.schema import VERSION, FieldError, Record, check

MAX_LINE = 64 << 20
"""Bytes of one record."""
MAX_RECORDS = 100_000
_FIRST = b'{"slotpool_record":'


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Adds `record` to the file at `path`, made with its folder where it is not there.

    Raises SlotpoolError for a record that `read` would not take, and for a file that holds something else than records.
    """
    try:
        check(record)
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
    except (ValueError, TypeError) as error:
        raise SlotpoolError(f"not a record: {error}", where=printable(path)) from error
    if not line.startswith(_FIRST) or len(line) > MAX_LINE:
        raise SlotpoolError(f"expected a record of at most {MAX_LINE} bytes that says so first, found {len(line)}", where=printable(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            _check_holds_records(path, file)
            file.write(line)
    except OSError as error:
        raise SlotpoolError(f"cannot write the record: {error.strerror}", where=printable(path)) from error


def check_appendable(path: Path) -> None:
    """Raises SlotpoolError, before anything was measured, where `append` would refuse to add to `path`. Makes nothing."""
    if not path.exists():
        return
    try:
        with path.open("ab+") as file:
            _check_holds_records(path, file)
    except OSError as error:
        raise SlotpoolError(f"cannot write records: {error.strerror}", where=printable(path)) from error


def _check_holds_records(path: Path, file: Any) -> None:
    """A model or a text named by mistake must not get a line at its end, and a torn line none behind it."""
    end = file.seek(0, os.SEEK_END)
    if not end:
        return
    file.seek(0)
    first = file.read(len(_FIRST))
    file.seek(end - 1)
    if first != _FIRST or file.read(1) != b"\n":
        raise SlotpoolError("expected a file of records, found something else", where=printable(path), do="Name another file.")


def read(path: Path, *, damaged: list[SlotpoolError] | None = None) -> list[Record]:
    """All records of a file, in its order. Empty lines are passed over.

    Raises SlotpoolError that names line and field for anything that is not a record of version 1, and for more than MAX_RECORDS. With
    a list `damaged`, errors of lines are added to it instead and the lines passed over.
    """
    try:
        with path.open("rb") as file:
            found = [_salvaged(line, path, number, damaged) for number, line in _lines(path, file) if line.strip()]
    except OSError as error:
        raise SlotpoolError(f"cannot read records: {error.strerror}", where=printable(path)) from error
    return [record for record in found if record is not None]


def _salvaged(line: bytes, path: Path, number: int, damaged: list[SlotpoolError] | None) -> Record | None:
    try:
        return _parsed(line, path, number)
    except SlotpoolError as error:
        if damaged is None:
            raise
        damaged.append(error)
        return None


def _lines(path: Path, file: Any) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise _damaged(path, number, f"expected a line of at most {MAX_LINE} bytes, found a longer one")
        if number > MAX_RECORDS:
            raise _damaged(path, number, f"expected at most {MAX_RECORDS} records, found more")
        yield number, line


def _parsed(line: bytes, path: Path, number: int) -> Record:
    try:
        document = json.loads(line, parse_constant=_refuse)
        if isinstance(document, dict) and "benchmark" in document and "slotpool_record" not in document:
            raise _damaged(path, number, f"expected a record of version {VERSION}, found one of the form before it")
        return check(document)
    except FieldError as error:
        raise _damaged(path, number, str(error)) from error
    except (ValueError, RecursionError) as error:
        # json's own messages may quote a line of megabytes
        reason = quoted(error.msg) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise _damaged(path, number, f"expected a JSON object, found none: {reason}") from error


def _refuse(constant: str) -> NoReturn:
    raise FieldError("the record", "finite numbers", constant)


def _damaged(path: Path, number: int, message: str) -> SlotpoolError:
    return SlotpoolError(message, where=f"{printable(path)}, line {number}")
