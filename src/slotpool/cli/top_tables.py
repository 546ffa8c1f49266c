"""The tables of `slotpool top`, from stats documents alone: processes, and of each its devices, layers and tensors.

Prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from slotpool.cli.output import table_lines
from slotpool.errors import printable
from slotpool.page import Window
from slotpool.page.layout import Header
from slotpool.pool_stats import Stats
from slotpool.sizes import format_bytes

NOBODY = "no process of this user uses a pool"
_LEFT = ("program", "model", "device", "tensor", "state", "reason")
_PROCESSES = ("pid", "program", "model", "slots", "hits now", "hits", "lookups/s", "copied/s", "saved/s", "refused")
_TIMES = (
    ("wait", "wait_ms"),
    ("copy", "copy_ms"),
    ("update", "update_ms"),
    ("on hits", "hit_compute_ms"),
    ("on misses", "miss_compute_ms"),
)
"""Of the window, in thousandths of its time."""
_MOVED = ("admitted", "evicted", "warmed", "pinned")
_COUNTED = ("lookups", "hits", "misses", "hit rate", "copied", "saved", "refused")


@dataclass(frozen=True)
class Process:
    """A session of a process: what its page says, its totals, and what it did since the last look."""

    header: Header
    stats: Stats
    window: Window


@dataclass(frozen=True)
class Table:
    """A table and the line above it, which may be empty."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def right(self) -> Sequence[str]:
        """The columns of numbers."""
        return [column for column in self.header if column not in _LEFT]

    def lines(self) -> list[str]:
        """As plain lines."""
        return table_lines(self.header, [[printable(cell) for cell in row] for row in self.rows], right=self.right)


def tables(processes: Sequence[Process], with_layers: bool, with_tensors: bool) -> list[Table]:
    """All that is asked for; nothing when there is no process."""
    if not processes:
        return []
    made = [Table("", (*_PROCESSES, *(title for title, _ in _TIMES)), [_process(process) for process in processes])]
    for process in processes:
        title = f"{process.header.pid} {printable(process.header.program)}"
        if with_layers:
            made += [Table(f"{title}: devices", ("device", "slots", "budget", "taken", "free", *_COUNTED), _devices(process.stats))]
            made += [
                Table(
                    f"{title}: layers",
                    ("layer", "device", "slots", *_COUNTED, *_MOVED),
                    _layers(process.stats),
                )
            ]
        if with_tensors:
            made += [Table(f"{title}: tensors", ("tensor", "state", "hits", "misses", "copied", "reason"), _tensors(process.stats))]
    return made


def _process(process: Process) -> tuple[str, ...]:
    header, stats, seconds = process.header, process.stats, process.window.seconds
    now = process.window.stats
    return (
        str(header.pid),
        header.program or "-",
        PurePath(header.model).name or "-",
        _slots(stats),
        _rate(now),
        _rate(stats),
        f"{_per_second(now['lookups'], seconds):.0f}",
        format_bytes(round(_per_second(now["bytes_copied"], seconds))),
        format_bytes(round(_per_second(now["bytes_saved"], seconds))),
        str(stats["refused"]),
        *(_share(now, name, seconds) for _, name in _TIMES),
    )


def _devices(stats: Stats) -> list[tuple[str, ...]]:
    return [
        (one["name"], format_bytes(one["slot_bytes"]), *map(_bytes, (one["budget"], one["taken"], one["free"])), *_counted(one))
        for one in stats["devices"]
    ]


def _layers(stats: Stats) -> list[tuple[str, ...]]:
    return [
        (
            str(one["layer"]) if one["pass"] == "exps" else f"{one['layer']} {one['pass']}",
            one["device"],
            f"{one['slots']}/{one['n_expert']}",
            *_counted(one),
            *(str(one[name]) for name in _MOVED),  # type: ignore[literal-required]
        )
        for one in stats["layers"]
    ]


def _tensors(stats: Stats) -> list[tuple[str, ...]]:
    return [
        (one["name"], one["state"], str(one["hits"]), str(one["misses"]), format_bytes(one["bytes_copied"]), one["reason"])
        for one in stats["tensors"]
    ]


def _counted(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        *(str(one[name]) for name in ("lookups", "hits", "misses")),
        _rate(one),
        *(format_bytes(one[name]) for name in ("bytes_copied", "bytes_saved")),
        str(one["refused"]),
    )


def _slots(stats: Stats) -> str:
    """Slots per expert tensor, from the fewest to the most."""
    found = sorted({layer["slots"] for layer in stats["layers"]})
    experts = max((layer["n_expert"] for layer in stats["layers"]), default=0)
    few = f"{found[0]}-{found[-1]}" if len(found) > 1 else "".join(map(str, found))
    return f"{few}/{experts}" if found else "-"


def _rate(counts: Mapping[str, Any]) -> str:
    return f"{counts['hits'] / counts['lookups']:.1%}" if counts["lookups"] else "-"


def _bytes(n_bytes: int | None) -> str:
    return "-" if n_bytes is None else format_bytes(n_bytes)


def _per_second(n: int, seconds: float) -> float:
    return n / seconds if seconds > 0 else 0.0


def _share(stats: Stats, name: str, seconds: float) -> str:
    both: float = stats["generation"][name] + stats["prompt"][name]  # type: ignore[literal-required]
    return f"{_per_second(round(both * 1e6), seconds) / 1e9:.1%}"
