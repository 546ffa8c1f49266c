"""Reads what the core left behind in the processes of a program: whether it was loaded, and what it pooled.

The format is stated in `core/backend/exit_report.h`. The file is written by another program's process, so anything may be in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_MOST_BYTES = 1 << 24
_HEAT = re.compile(r"heat (\d{1,6}) (exps|chexps)((?: \d{1,6}:\d{1,15})+)")
_EXIT = re.compile(r"exit pooled=(\d{1,9}) lookups=(\d{1,20})")


@dataclass(frozen=True)
class Report:
    """What was found, over all processes that had the plan."""

    was_loaded: bool = False
    refusals: tuple[str, ...] = ()
    n_loaded: int = 0
    n_ended: int = 0
    pooled: int = 0
    """The most expert tensors that one process had in slots."""
    heat: Mapping[tuple[int, str], Mapping[int, int]] = field(default_factory=dict)
    """Rows that asked for an expert, of each (layer, pass), over all processes; not checked against any model."""

    @property
    def has_ended(self) -> bool:
        """Whether every process that loaded the core said at its exit what it did."""
        return self.n_ended >= self.n_loaded

    @property
    def may_have_pooled(self) -> bool:
        """Whether something was pooled, or may have been by a process that did not live to tell."""
        return self.pooled > 0 or (self.was_loaded and not self.has_ended)


def read_report(path: Path) -> Report:
    """The report at `path`; an empty one when the core never wrote it."""
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return Report()
    statements = [line.partition(" ")[2] for line in lines]
    ends = [match for match in map(_EXIT.fullmatch, statements) if match]
    n_loaded = statements.count("loaded")
    return Report(
        was_loaded=n_loaded > 0,
        refusals=tuple(said.removeprefix("off ") for said in statements if said.startswith("off ")),
        n_ended=len(ends),
        n_loaded=n_loaded,
        pooled=max((int(match[1]) for match in ends), default=0),
        heat=_heat(match for match in map(_HEAT.fullmatch, statements) if match),
    )


def _heat(found: Iterable[re.Match[str]]) -> dict[tuple[int, str], Counter[int]]:
    heat: dict[tuple[int, str], Counter[int]] = {}
    for match in found:
        pairs = (word.split(":") for word in match[3].split())
        heat.setdefault((int(match[1]), match[2]), Counter()).update({int(expert): int(rows) for expert, rows in pairs})
    return heat
