"""Seconds of one event (a token in a layer) from measured speeds, for every way to serve misses. The source of the formulas is
docs/design/planning.md.

Hits of an event are taken as drawn one by one with the same chance: the mean of a maximum is more than the maximum of the means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb

CPU, COPY, AUTO = "cpu", "copy", "auto"
FROM_DISK, FAULTING = "disk", "faults"
"""Experts on disk: read directly into slots of RAM, or mapped and faulted in by plain llama.cpp."""
_LATE_SHARE = 1 / 3
"""Of a miss from disk, the part that is computed after all its bytes are there: the last of gate, up and down."""


@dataclass(frozen=True)
class Rates:
    """Bytes per second, infinite where there is none: experts computed by the CPU (`cpu`, and while copies go on, `cpu_beside`) and by the
    device; the link to it; the disk, read directly and by page faults. `turn` is seconds for what a layer sends to the CPU and back.
    `plain_cpu` is plain llama.cpp's `cpu`, where the layout of its experts is another one."""

    cpu: float
    device: float = float("inf")
    link: float = float("inf")
    cpu_beside: float | None = None
    turn: float = 0.0
    disk: float = float("inf")
    faults: float = float("inf")
    plain_cpu: float | None = None

    @property
    def of_plain(self) -> Rates:
        """Those of plain llama.cpp."""
        return replace(self, cpu=self.plain_cpu or self.cpu, plain_cpu=None)

    @property
    def break_even(self) -> float:
        """The hit rate at which copying every miss is as fast as plain CPU experts: 1 - P/R, at least 0."""
        return max(0.0, 1.0 - self.link / self.of_plain.cpu) if self.link < float("inf") else 0.0


@dataclass(frozen=True)
class Event:
    """One token in one layer: `n_used` experts of `slab_bytes` each, over all tensors of the layer; `row_bytes` of its activations."""

    n_used: int
    slab_bytes: int
    row_bytes: int = 0


def event_seconds(event: Event, n_misses: int, rates: Rates, way: str) -> float:
    """Seconds of an event with so many misses. KeyError for a way that there is not."""
    return _WAYS[way](event.n_used - n_misses, n_misses, event, rates)


def turn_seconds(event: Event, n_rows: int, rates: Rates) -> float:
    """What it takes beside the compute that the CPU computes rows of a layer on a device: the layer's input there, the rows back."""
    return rates.turn + (1 + n_rows) * event.row_bytes / rates.link


def mean_seconds(event: Event, hit_rate: float, rates: Rates, way: str) -> float:
    """The mean over events whose experts are hits with the chance `hit_rate`."""
    k = event.n_used
    return sum(chance(k, m, 1.0 - hit_rate) * event_seconds(event, m, rates, way) for m in range(k + 1))


def _on_device(event: Event, rates: Rates) -> float:
    """Whoever has which rows: a call keeps its shape, so the device computes something for those of the CPU too."""
    return event.n_used * event.slab_bytes / rates.device


def _cpu(n_hits: int, n_misses: int, event: Event, rates: Rates) -> float:
    """Hits on the device and misses on the CPU at the same time; copies for later go on beside it."""
    slab, beside = event.slab_bytes, rates.cpu_beside or rates.cpu
    turn = turn_seconds(event, n_misses, rates) if n_misses else 0.0
    return max(_on_device(event, rates) if n_hits else 0.0, n_misses * slab / beside) + turn


def _copy(n_hits: int, n_misses: int, event: Event, rates: Rates) -> float:
    return _on_device(event, rates) + n_misses * event.slab_bytes / rates.link


def _auto(n_hits: int, n_misses: int, event: Event, rates: Rates) -> float:
    """So many copies as make the longer of the two the shortest (docs/design/devices.md)."""
    return min(_split(n_hits, n_misses, n, event, rates) for n in range(n_misses + 1))


def _split(n_hits: int, n_misses: int, n_copied: int, event: Event, rates: Rates) -> float:
    """As the core counts it (`core/dispatch/miss_costs.h`): what the device computes comes after the copies, the CPU works beside these."""
    n_left = n_misses - n_copied
    if not n_left:
        return _copy(n_hits, n_copied, event, rates)
    if not n_copied:
        return _cpu(n_hits, n_left, event, rates)
    slab, beside = event.slab_bytes, rates.cpu_beside or rates.cpu
    longer = max(n_copied * slab / rates.link, n_left * slab / beside)
    return _on_device(event, rates) + longer + turn_seconds(event, n_left, rates)


def n_copied(event: Event, n_misses: int, rates: Rates) -> int:
    """Of an event's misses, how many `auto` copies before use; of equals the most, as the core has it."""
    n_hits = event.n_used - n_misses
    return min(range(n_misses + 1), key=lambda n: (_split(n_hits, n_misses, n, event, rates), -n))


def _disk(n_hits: int, n_misses: int, event: Event, rates: Rates) -> float:
    """Reads behind the hits' compute; of the misses all but the last part is computed while the rest is read."""
    slab = event.slab_bytes
    return max(n_misses * slab / rates.disk, n_hits * slab / rates.cpu) + _LATE_SHARE * n_misses * slab / rates.cpu


def _faults(n_hits: int, n_misses: int, event: Event, rates: Rates) -> float:
    slab = event.slab_bytes
    return (n_hits + n_misses) * slab / rates.cpu + n_misses * slab / rates.faults


def tiered_seconds(event: Event, hit_rate: float, from_disk: float, rates: Rates, way: str) -> float:
    """The mean over events where misses of the device's slots come from RAM, and with the chance `from_disk` from the disk: read behind
    what else goes on, and all but the last part of a miss computed while the rest is read."""
    k, slab = event.n_used, event.slab_bytes
    total = 0.0
    for m in range(k + 1):
        seconds = event_seconds(event, m, rates, way)
        for n_read in range(m + 1):
            share = chance(k, m, 1.0 - hit_rate) * chance(m, n_read, from_disk)
            total += share * (max(seconds, n_read * slab / rates.disk) + _LATE_SHARE * n_read * slab / rates.cpu)
    return total


def chance(n: int, m: int, p: float) -> float:
    """Of m among n that each come with the chance p."""
    return comb(n, m) * p**m * (1.0 - p) ** (n - m)


_WAYS = {CPU: _cpu, COPY: _copy, AUTO: _auto, FROM_DISK: _disk, FAULTING: _faults}
