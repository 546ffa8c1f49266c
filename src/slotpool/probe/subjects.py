"""What is measured: the machine's memory and devices, the weights that stand for a model's, the part of a file that stands for its disk.

Looks at headers, devices and mount points; measures nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slotpool import engine, machine
from slotpool.engine import Device
from slotpool.model import Model
from slotpool.model.tensor_types import TENSOR_TYPES
from slotpool.native.probe import Matrices

_NUMBERS = {kind.name: number for number, kind in TENSOR_TYPES.items()}
_MOST_KINDS = 3
"""Kinds of expert tensors of a model that are measured: those with the most bytes."""
_STANDARD = tuple(Matrices(_NUMBERS[name], name, 2048, 768, 0, 8) for name in ("Q8_0", "Q4_K"))
_STANDARD_PLAIN = Matrices(_NUMBERS["Q8_0"], "Q8_0", 2048, 2048, 0, 0)
_STANDARD_SLAB = 2 << 20


@dataclass(frozen=True)
class FilePart:
    """Bytes of a file that are read to measure its disk; `disk` is the mount point, `of` what is mounted there as far as we know."""

    path: Path
    begin: int
    end: int
    disk: str
    of: str


@dataclass(frozen=True)
class Subjects:
    """`weights` are experts and plain weights (n_used 0), counts still to be chosen; links and disks move `slab_bytes` at a time."""

    devices: tuple[Device, ...]
    weights: tuple[Matrices, ...]
    slab_bytes: int
    file: FilePart | None
    n_threads: int
    memory: int
    """Bytes that may be taken for measuring."""


def identity() -> str:
    """What tells this machine from another one, and this engine."""
    here = machine.read()
    return (
        f"{here.system.split()[0]}, {_processor()}, {engine.n_cores()} cores, {here.ram_total} bytes, llama-cpp-python {engine.version()}"
    )


def of_machine(n_threads: int | None = None, disk: Path | None = None, devices: Sequence[str] | None = None) -> Subjects:
    """The machine without a model: weights of common types and sizes. `disk` is a large file whose disk is measured."""
    part = None
    if disk is not None:
        part = _file_part(disk, 0, os.stat(disk).st_size)
    return Subjects(_devices(devices), (*_STANDARD, _STANDARD_PLAIN), _STANDARD_SLAB, part, n_threads or engine.n_cores(), _memory())


def of_model(model: Model, n_threads: int | None = None, devices: Sequence[str] | None = None) -> Subjects:
    """What a model needs to know: its own kinds of experts and weights, its own slabs, its own file."""
    kinds: dict[Matrices, int] = {}
    for tensor in model.experts:
        one = Matrices(_NUMBERS[tensor.type], tensor.type, tensor.ne[0], tensor.ne[1], 0, min(model.n_expert_used, tensor.n_expert))
        kinds[one] = kinds.get(one, 0) + tensor.n_bytes
    plain = plain_weights(model)
    weights = (*sorted(kinds, key=lambda one: -kinds[one])[:_MOST_KINDS], *([plain] if plain else []))
    slab = max((tensor.slab_bytes for tensor in model.experts), default=_STANDARD_SLAB)
    first = min(model.files, key=lambda file: file.shard)
    part = _file_part(first.path, first.data_offset, first.size) if first.size - first.data_offset > 2 * slab else None
    return Subjects(_devices(devices), weights, slab, part, n_threads or engine.n_cores(), _memory())


def plain_weights(model: Model) -> Matrices | None:
    """The kind of plain weights with the most bytes, which stands for all of them; None where no type of them is known."""
    kinds: dict[Matrices, int] = {}
    known = {tensor.name for tensor in model.experts}
    for file in model.files:
        for tensor in file.tensors:
            if tensor.name in known or tensor.type not in _NUMBERS or tensor.ne[1] < 2 or tensor.ne[2] > 1 or not tensor.n_bytes:
                continue
            one = Matrices(_NUMBERS[tensor.type], tensor.type, tensor.ne[0], tensor.ne[1], 0, 0)
            kinds[one] = kinds.get(one, 0) + tensor.n_bytes
    return max(kinds, key=lambda one: kinds[one], default=None)


def _devices(names: Sequence[str] | None) -> tuple[Device, ...]:
    found = [device for device in engine.devices() if device.type in ("GPU", "IGPU")]
    return tuple(device for device in found if names is None or device.name in names)


def _memory() -> int:
    return machine.read().ram_available // 8


def _file_part(path: Path, begin: int, end: int) -> FilePart:
    place = Path(os.path.realpath(path)).parent
    while not os.path.ismount(place):
        place = place.parent
    return FilePart(path, begin, end, str(place), _mounted_at(str(place)))


def _mounted_at(place: str) -> str:
    """Type and source of a mount point as the system says them; empty where it does not."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    found = [parts for parts in (line.split() for line in lines) if len(parts) > 2 and parts[1] == place]
    return f"{found[-1][2]} {found[-1][0]}" if found else ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return machine.read().processor
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), machine.read().processor)
