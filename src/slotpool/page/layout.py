"""The layout of a stats page, the reader's side of `core/stats/page_layout.h`: bytes in, facts and counters out.

Opens no file. The bytes are hostile: every size, number and place is checked against the bytes that are there.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slotpool.native import GROUP_COUNTERS, PHASE_COUNTERS, DeviceMemory, GroupCounts, PhaseCounts, known_bytes

MAGIC = b"slotpool"
VERSION = 5
MAX_BYTES = 64 << 20
"""A page of the largest model known has less than one."""

_HEADER = struct.Struct("<8s 6I 3I I 5Q 3Q 3Q I 4x 64s 1024s 256s")
_GROUP = struct.Struct("<5i 4x Q 16s 256s")
_TENSOR = struct.Struct("<i H H Q 32s 64s 256s")
_DEVICE = struct.Struct("<8Q 64s")
_N_PHASE = len(PHASE_COUNTERS)
_COUNTS = struct.Struct(f"<{2 * _N_PHASE + len(GROUP_COUNTERS)}Q")
_SIZES = tuple(record.size for record in (_HEADER, _GROUP, _TENSOR, _DEVICE, _COUNTS))
_MAX_RECORDS = 1 << 18
_MAX_CONTEXTS = 1 << 12
_MAX_BYTES_OF_EXPERT = 1 << 62
_LATEST_NS = 10**19
"""In the year 2286: what a calendar can show."""


class UnreadableError(Exception):
    """Why a page cannot be used, in half a line: expected, found."""


@dataclass(frozen=True)
class Header:
    """What a page says about itself. `started_ns` is when the session began, nanoseconds since the epoch.

    `changes` is odd while the process is changing texts or facts, and another number afterwards.
    """

    session: int
    pid: int
    process_started: int
    started_ns: int
    n_contexts: int
    changes: int
    resets: int
    is_on_disk: bool
    program: str
    model: str
    why_buffered: str
    n_records: tuple[int, int, int]
    places: tuple[int, int, int]
    contexts_at: int
    context_bytes: int


@dataclass(frozen=True)
class PagedGroup:
    """The expert tensors of a layer that share a routing. `off_reason` is why it is not pooled after all."""

    layer: int
    n_expert: int
    planned_slots: int
    slots: int
    device: str
    slab_bytes: int
    pass_: str
    off_reason: str
    n_stored: int


@dataclass(frozen=True)
class PagedTensor:
    """An expert tensor. `group` None: it was not planned for, and `off_reason` says why."""

    name: str
    role: str
    group: int | None
    slab_bytes: int
    is_stored: bool
    is_repacked: bool
    off_reason: str


@dataclass(frozen=True)
class Facts:
    """What stands on a page beside the counters."""

    header: Header
    groups: tuple[PagedGroup, ...]
    tensors: tuple[PagedTensor, ...]
    devices: tuple[DeviceMemory, ...]


@dataclass(frozen=True)
class Page:
    """A page as it was at one time: facts, and the counters of every group, summed over contexts."""

    facts: Facts
    counts: tuple[GroupCounts, ...]


def read_header(page: bytes) -> Header | None:
    """The header of a page; None when its process has not finished it yet. Raises UnreadableError for what is no page of this version."""
    magic, version = page[:8], int.from_bytes(page[8:12], "little")
    if not any(magic):  # the last thing that is written; a file that was just made is empty
        return None
    if magic != MAGIC or len(page) < 12:
        raise UnreadableError(f"expected a stats page, found other bytes ({len(page)} of them)")
    if version != VERSION:
        raise UnreadableError(f"expected a stats page of version {VERSION}, found version {version}: another slotpool wrote it")
    if len(page) < _HEADER.size:
        raise UnreadableError(f"expected a header of {_HEADER.size} bytes, found {len(page)}")
    fields = _HEADER.unpack_from(page)
    if fields[2:7] != _SIZES:
        raise UnreadableError(f"expected records of {_SIZES} bytes, found {fields[2:7]}")
    header = Header(
        session=fields[10],
        pid=fields[16],
        process_started=fields[17],
        started_ns=fields[18],
        n_contexts=fields[19],
        changes=fields[20],
        resets=fields[21],
        is_on_disk=bool(fields[22]),
        program=_text(fields[23]),
        model=_text(fields[24]),
        why_buffered=_text(fields[25]),
        n_records=fields[7:10],
        places=fields[11:14],
        contexts_at=fields[14],
        context_bytes=fields[15],
    )
    _check(header, len(page))
    return header


def read_facts(header: Header, page: bytes) -> Facts:
    """Groups, tensors and devices. `header` was read from the same bytes. Raises UnreadableError."""
    devices = tuple(_device(*fields) for fields in _records(_DEVICE, header, 2, page))
    names = [device.name for device in devices]
    tensors = tuple(_tensor(fields, header.n_records[0]) for fields in _records(_TENSOR, header, 1, page))
    n_stored = Counter(tensor.group for tensor in tensors if tensor.is_stored)
    groups = tuple(_group(fields, names, n_stored[index]) for index, fields in enumerate(_records(_GROUP, header, 0, page)))
    return Facts(header, groups, tensors, devices)


def counters_at(header: Header, index: int) -> list[tuple[int, int]]:
    """Where the counters of group `index` begin and end in the page, for every context."""
    starts = (header.contexts_at + context * header.context_bytes + index * _COUNTS.size for context in range(header.n_contexts))
    return [(start, start + _COUNTS.size) for start in starts]


def read_counts(facts: Facts, index: int, counters: bytes) -> GroupCounts:
    """The counters of group `index`, summed over contexts."""
    group = facts.groups[index]
    sums = [sum(cells) for cells in zip(*_COUNTS.iter_unpack(counters), strict=True)] or [0] * (_COUNTS.size // 8)
    generation, prompt, others = sums[:_N_PHASE], sums[_N_PHASE : 2 * _N_PHASE], sums[2 * _N_PHASE :]
    return GroupCounts(
        layer=group.layer,
        pass_=group.pass_,
        device=group.device,
        slots=group.slots,
        n_expert=group.n_expert,
        n_tensors=group.n_stored,
        slab_bytes=group.slab_bytes,
        **{name: _wrapped(value) for name, value in zip(GROUP_COUNTERS, others, strict=True)},
        generation=_phase(generation),
        prompt=_phase(prompt),
    )


def _phase(values: list[int]) -> PhaseCounts:
    return PhaseCounts(**{name: _wrapped(value) for name, value in zip(PHASE_COUNTERS, values, strict=True)})


def _wrapped(value: int) -> int:
    return value % 2**64  # as the core adds: a count that is taken back is added as its complement


def _check(header: Header, n_bytes: int) -> None:
    """Every record lies inside the page, behind the header, where a counter may be read in one piece."""
    for n, at, size in zip(header.n_records, header.places, (_GROUP.size, _TENSOR.size, _DEVICE.size), strict=True):
        if n > _MAX_RECORDS or at % 8 or at < _HEADER.size or at + n * size > n_bytes:
            raise UnreadableError(f"expected {n} records inside its {n_bytes} bytes, found them at {at}")
    if header.started_ns > _LATEST_NS:
        raise UnreadableError(f"expected a time at which the session began, found {header.started_ns} nanoseconds since 1970")
    n_counts = header.n_records[0] * _COUNTS.size
    end = header.contexts_at + header.n_contexts * header.context_bytes
    if header.n_contexts > _MAX_CONTEXTS or header.context_bytes % 8 or header.context_bytes < n_counts or header.contexts_at % 8:
        raise UnreadableError(f"expected room for {n_counts} bytes of counters per context, found {header.context_bytes}")
    if header.contexts_at < _HEADER.size or end > n_bytes:
        raise UnreadableError(f"expected the counters of {header.n_contexts} contexts inside its {n_bytes} bytes, found their end at {end}")


def _records(record: struct.Struct, header: Header, kind: int, page: bytes) -> Iterator[tuple[Any, ...]]:
    at = header.places[kind]
    return record.iter_unpack(page[at : at + header.n_records[kind] * record.size])


def _device(
    budget: int, taken: int, free: int, copy_ns: int, host_ns: int, hits_ns: int, fetch_ns: int, staging: int, name: bytes
) -> DeviceMemory:
    return DeviceMemory(_text(name), known_bytes(budget), taken, known_bytes(free), copy_ns, host_ns, hits_ns, fetch_ns, staging)


def _group(fields: tuple[Any, ...], devices: list[str], n_stored: int) -> PagedGroup:
    layer, n_expert, planned_slots, slots, device, slab_bytes, pass_, off_reason = fields
    if not (0 <= device < len(devices) and 0 <= slots <= n_expert and min(planned_slots, layer) >= 0):
        raise UnreadableError(f"expected a layer with slots on a device, found layer {layer} with {slots} of {n_expert} on device {device}")
    return PagedGroup(layer, n_expert, planned_slots, slots, devices[device], slab_bytes, _text(pass_), _text(off_reason), n_stored)


def _tensor(fields: tuple[Any, ...], n_groups: int) -> PagedTensor:
    group, is_stored, is_repacked, slab_bytes, role, name, off_reason = fields
    if not -1 <= group < n_groups or slab_bytes > _MAX_BYTES_OF_EXPERT:
        raise UnreadableError(f"expected a tensor of one of {n_groups} groups, found group {group} and slabs of {slab_bytes} bytes")
    return PagedTensor(
        _text(name), _text(role), group if group >= 0 else None, slab_bytes, bool(is_stored), bool(is_repacked), _text(off_reason)
    )


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")
