"""From records to sheets: where each comes from and what it says; which are the newest of their series.

Renders nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slotpool import records
from slotpool.errors import SlotpoolError, printable, unknown
from slotpool.report.facts import Sheet, Source
from slotpool.report.fields import MOST_TEXT, Field
from slotpool.report.kinds import KINDS, kind_of
from slotpool.sizes import format_bytes

UNIMPORTANT = frozenset({"rounds", "minutes", "expect"})
"""Flags that say how often something was measured, or what was hoped for, and not what."""


def read(paths: Iterable[Path], *, shown: str = "", damaged: list[SlotpoolError] | None = None) -> list[Sheet]:
    """The sheets of all records in `paths`, in their order. Files are called by their path, or `shown`.

    Raises SlotpoolError that names file and line, or record and field, for what cannot be read; for a file without records, too. With
    a list `damaged`, errors of records are added to it instead and the records passed over.
    """
    return [sheet for path in paths for sheet in _of_file(path, shown or printable(path), damaged)]


def _of_file(path: Path, name: str, damaged: list[SlotpoolError] | None) -> list[Sheet]:
    found = records.read(path, damaged=damaged)
    if not found and not damaged:
        raise SlotpoolError("expected records, found none", where=printable(path))
    sheets = []
    for number, record in enumerate(found, 1):
        try:
            sheets.append(sheet_of(record, name, number))
        except SlotpoolError as error:
            if damaged is None:
                raise
            damaged.append(error)
    return sheets


def no_such_kind(kind: str, there: Sequence[str]) -> SlotpoolError:
    """The error for a kind of which no record was given."""
    return unknown("kind", kind, there, where="slotpool report --kind")


def sheet_of(record: records.Record, file: str = "", number: int = 1) -> Sheet:
    """One record, read by its kind."""
    kind, place = kind_of(record.kind), f"{file}, record {number}"
    content = kind.content(Field(record.results, place, "results"), Field(record.flags, place, "flags"))
    return Sheet(_source(record, file, number), _title(record), kind.about, content)


def _title(record: records.Record) -> str:
    """Of the kind, with what tells records of it apart at a glance: the model's name, or the kind's own where it is unknown."""
    title = kind_of(record.kind).title
    if record.kind not in KINDS:
        return f"{title}: {record.kind}"
    return f"{title}: {record.model['name']}" if record.model else title


def _source(record: records.Record, file: str, number: int) -> Source:
    return Source(
        file=file,
        line=number,
        kind=record.kind,
        date=record.date,
        commit=record.commit,
        has_changes=record.uncommitted_changes,
        slotpool=record.slotpool,
        engine=str(record.engine["package"]),
        machine=_machine(record.machine),
        devices=tuple(device["description"] for device in record.devices if device["name"] != "CPU"),
        load=record.load_average,
        model=_model(record),
        model_id=str((record.model or {}).get("fingerprint") or ""),
        flags=dict(record.flags),
    )


def _machine(machine: Mapping[str, Any]) -> str:
    cpu = str(machine.get("cpu") or machine.get("processor") or "unknown processor")[:MOST_TEXT]
    cores, memory = machine.get("n_cores"), machine.get("ram_total")
    parts = [cpu, f"{cores} cores" if isinstance(cores, int) else "", format_bytes(memory) if isinstance(memory, int) else ""]
    return ", ".join(part for part in parts if part)


def _model(record: records.Record) -> str:
    if record.model:
        return f"{record.model['name']}, {format_bytes(record.model['bytes'])}, sha256 {record.model['sha256'][:12]}"
    return ""


def series(sheet: Sheet) -> str:
    """What records must share to be of one series, of which the newest counts: kind, machine, model and the flags of their kind."""
    apart = kind_of(sheet.source.kind).apart
    flags = sheet.source.flags if apart is None else {name: sheet.source.flags.get(name) for name in apart}
    return key(sheet, {name: value for name, value in flags.items() if name not in UNIMPORTANT})


def key(sheet: Sheet, flags: Mapping[str, Any], ignored: Sequence[str] = ()) -> str:
    """Kind, machine, model and `flags` as one text; what is `ignored` (machine, model, flags) is left out."""
    source = sheet.source
    parts = {"kind": source.kind, "machine": [source.machine, *source.devices], "model": source.model_id, "flags": dict(flags)}
    return json.dumps({name: value for name, value in parts.items() if name not in ignored}, sort_keys=True)


def newest(sheets: Iterable[Sheet]) -> list[Sheet]:
    """The last of every series: by date, of one day by their order. In the order of the kinds."""
    found: dict[str, Sheet] = {}
    for sheet in sheets:
        name = series(sheet)
        if name not in found or sheet.source.date[:10] >= found[name].source.date[:10]:
            found[name] = sheet
    order = {name: number for number, name in enumerate(KINDS)}
    return sorted(found.values(), key=lambda sheet: order.get(sheet.source.kind, len(order)))


def origin(source: Source) -> str:
    """When, of which commit, on what: the line that stands under every table."""
    commit = f"commit {source.commit}" if source.commit else f"slotpool {source.slotpool}"
    changes = " with uncommitted changes" if source.has_changes else ""
    load = "" if source.load is None else f"load {source.load:.1f}"
    parts = (source.date, commit + changes, source.machine, *source.devices, source.engine, source.model, load)
    return ", ".join(printable(part) for part in parts if part)
