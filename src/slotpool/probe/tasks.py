"""The list of what is measured, each with how its work is set up. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from slotpool import speeds
from slotpool.engine import Device
from slotpool.model.tensor_types import TENSOR_TYPES
from slotpool.native.probe import Matrices, Probe, Work, read_file
from slotpool.probe.faults import Faults
from slotpool.probe.subjects import FilePart, Subjects

_LEAST_ARENA = 256 << 20
_CACHES = 4
"""Memory that is read is at least so many times the largest cache, and _LEAST_ARENA, where there is so much."""
_SHORTEST_COPY = 4
_DEVICE_SHARE = 4
"""At most this part of what a device has free is taken."""


class Repeats(Protocol):
    """Something that can be done for a while."""

    def repeat(self, seconds: float) -> tuple[int, float]:
        """Amount and seconds."""

    def close(self) -> None:
        """Frees its memory."""


Make = Callable[[], Repeats]


@dataclass(frozen=True)
class Task:
    """One speed: its name, and how the work is made; `beside` runs at the same time and is not measured.

    Speeds in seconds are for `each` of the amount (a node, a copy of so many bytes).
    """

    subject: str
    what: str
    unit: str
    of: str
    make: Make
    beside: Make | None = None
    each: int = 1


def tasks_of(subjects: Subjects, probe: Probe) -> list[Task]:
    """Everything that is measured of `subjects`, in order."""
    return [
        *_memory(subjects, probe),
        *(task for device in subjects.devices for task in _device(subjects, probe, device)),
        *_disk(subjects),
    ]


def _memory(subjects: Subjects, probe: Probe) -> Iterator[Task]:
    arena, n_threads = _arena(subjects.memory), subjects.n_threads
    yield Task("CPU", speeds.READ, "B/s", _cpu(subjects), lambda: probe.read(arena, n_threads))
    yield Task("CPU", speeds.NODE, "s", _cpu(subjects), lambda: probe.nodes("CPU", n_threads))
    for weights in subjects.weights:
        yield Task("CPU", name_of(weights), "B/s", _cpu(subjects), _multiply(probe, "CPU", weights, arena, n_threads))
        repacked = replace(weights, is_repacked=True)
        if probe.repacks(repacked):
            yield Task("CPU", name_of(repacked), "B/s", _cpu(subjects), _multiply(probe, "CPU", repacked, arena, n_threads))


def _device(subjects: Subjects, probe: Probe, device: Device) -> Iterator[Task]:
    name, of, slab = device.name, device.description, subjects.slab_bytes // 64 * 64
    arena = _arena(subjects.memory)
    on_device = min(arena, device.free_bytes // _DEVICE_SHARE)
    yield Task(name, speeds.NODE, "s", of, lambda: probe.nodes(name, 1))
    for weights in subjects.weights:
        yield Task(name, name_of(weights), "B/s", of, _multiply(probe, name, weights, on_device, 1))
    yield Task(name, speeds.LATENCY, "s", of, lambda: probe.copy(name, 4096, _SHORTEST_COPY), each=_SHORTEST_COPY)
    for what, to_host in ((speeds.UPLOAD, False), (speeds.DOWNLOAD, True)):
        for pinned in (False, True) if probe.has_host_memory(name) else (False,):
            yield Task(name, what + speeds.PINNED * pinned, "B/s", of, _copy(probe, name, arena, slab, to_host, pinned))
    first = next((one for one in subjects.weights if one.n_used), None)
    if first:
        on_cpu = _multiply(probe, "CPU", first, arena, subjects.n_threads)
        upload = _copy(probe, name, arena, slab, False, False)
        yield Task(name, speeds.UPLOAD + speeds.WITH_EXPERTS, "B/s", of, upload, on_cpu)
        yield Task(name, name_of(first) + speeds.WITH_UPLOAD, "B/s", of, on_cpu, upload)


def _disk(subjects: Subjects) -> Iterator[Task]:
    part = subjects.file
    if part is None:
        return
    slab = min(subjects.slab_bytes, (part.end - part.begin) // 4)
    for depth in speeds.DISK_DEPTHS:
        yield Task(part.disk, speeds.direct(depth), "B/s", part.of, _read(part, slab, depth))
    yield Task(part.disk, speeds.FAULTS, "B/s", part.of, lambda: Faults(part.path, part.begin, part.end, slab, subjects.n_threads))


def name_of(weights: Matrices) -> str:
    """The name of the speed of these weights."""
    suffix = speeds.REPACKED * weights.is_repacked
    if weights.n_used:
        return speeds.experts(weights.type_name, weights.ne0, weights.ne1, weights.n_used) + suffix
    return speeds.plain(weights.type_name, weights.ne0, weights.ne1) + suffix


def _cpu(subjects: Subjects) -> str:
    return f"{subjects.n_threads} threads"


def _multiply(probe: Probe, device: str, weights: Matrices, n_bytes: int, n_threads: int) -> Callable[[], Work]:
    kind = TENSOR_TYPES[weights.type]
    slab = weights.ne0 // kind.block * kind.block_bytes * weights.ne1
    count = max(2 * max(1, weights.n_used), min(4096, -(-n_bytes // slab)))
    return lambda: probe.multiply(device, replace(weights, count=count), n_threads)


def _copy(probe: Probe, name: str, arena: int, slab: int, to_host: bool, pinned: bool) -> Callable[[], Work]:
    return lambda: probe.copy(name, arena, slab, to_host=to_host, pinned=pinned)


def _read(part: FilePart, slab: int, depth: int) -> Callable[[], Work]:
    return lambda: read_file(part.path, part.begin, part.end, slab, depth)


def _arena(most: int) -> int:
    """Bytes to read so that they come from memory and from no cache."""
    return max(1 << 20, min(most, max(_LEAST_ARENA, _CACHES * _largest_cache())))


def _largest_cache() -> int:
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) << 10 for size in sizes if size.endswith("K") and size[:-1].isdigit()), default=0)
