"""Speeds and their names, frozen: a median of several samples, its spread, when and on what it was measured. Measures nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

READ = "read"
"""Of memory: plain reads by all threads."""
NODE = "node"
"""Of a device: seconds for a node of a graph that computes next to nothing."""
UPLOAD, DOWNLOAD, LATENCY = "upload", "download", "latency"
"""Of a device's link: copies of slabs to and from it, from and to ordinary memory; seconds for the shortest copy to it."""
PINNED = " pinned"
"""Behind UPLOAD and DOWNLOAD: host memory of the device's own buffer type for it."""
WITH_UPLOAD, WITH_EXPERTS = " with upload", " with experts"
"""Behind the speed of the CPU's experts, and behind UPLOAD: both at the same time."""
REPACKED = " repacked"
"""Behind the CPU's speed of experts or plain weights: laid out as llama.cpp repacks them for it, where it does."""
FAULTS = "page faults"
"""Of a disk: a mapped file whose pages are not in memory, touched by all threads."""
DISK_DEPTHS = (1, 2, 4, 8)
"""Reads in flight."""
UNITS = ("B/s", "s")
BUSY_LOAD = 0.5
"""Load average per core above which the machine was busy with something else."""


def experts(type_name: str, ne0: int, ne1: int, n_used: int) -> str:
    """The name of one-token matmuls with `n_used` experts of [ne0, ne1] each; bytes are those of the experts that are used."""
    return f"experts {type_name} {ne0}x{ne1} k={n_used}"


def plain(type_name: str, ne0: int, ne1: int) -> str:
    """The name of one-token matmuls with plain weights of [ne0, ne1]."""
    return f"weights {type_name} {ne0}x{ne1}"


def direct(depth: int) -> str:
    """The name of reads past the page cache, `depth` in flight."""
    return f"direct reads x{depth}"


@dataclass(frozen=True)
class Speed:
    """One measured speed. `subject` is CPU, a device by ggml's name or a mount point, `of` describes it: with another it is another thing.

    `median`, `low` and `high` are in `unit` (bytes per second, or seconds); `n_samples` says how many there were. `load` is the load
    average per core before it was measured, `date` when, as ISO 8601 in UTC. `note` is what a reader must know, empty mostly.
    """

    subject: str
    what: str
    unit: str
    median: float
    low: float
    high: float
    n_samples: int
    of: str = ""
    date: str = ""
    load: float = 0.0
    note: str = ""

    @property
    def is_busy(self) -> bool:
        """Whether the machine was busy with something else when it was measured."""
        return self.load > BUSY_LOAD

    @property
    def spread(self) -> float:
        """(high - low) / median."""
        return (self.high - self.low) / self.median


def summary(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median, lowest and highest of samples, all of which are finite and above zero. ValueError where they are not."""
    if not samples or not all(math.isfinite(one) and one > 0 for one in samples):
        raise ValueError(f"expected finite samples above zero, found {list(samples)}")
    return median(samples), min(samples), max(samples)


@dataclass(frozen=True)
class Speeds:
    """What is known about one machine. `identity` says which: processor, cores, memory and engine."""

    identity: str
    all: tuple[Speed, ...] = ()

    @cached_property
    def _places(self) -> dict[tuple[str, str], Speed]:
        return {(speed.subject, speed.what): speed for speed in self.all}

    def find(self, subject: str, what: str, of: str | None = None) -> Speed | None:
        """The speed of that name; None when it was not measured, or on something else than `of`."""
        found = self._places.get((subject, what))
        return found if found and of in (None, found.of) else None

    def value(self, subject: str, *names: str) -> float | None:
        """The median of the first of `names` that was measured."""
        return next((found.median for name in names if (found := self.find(subject, name))), None)

    def added(self, more: Iterable[Speed]) -> Speeds:
        """With `more`, which take the place of those of the same name."""
        places = {(speed.subject, speed.what): speed for speed in (*self.all, *more)}
        return Speeds(self.identity, tuple(places.values()))
