"""What a profile holds, frozen: whose it is, and per group (layer, pass) the experts that were asked for, the hottest first.

Reads and writes no files, and knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slotpool.trace import Facts

MILLION = 1_000_000
MAX_ROWS = 1 << 48
"""That a file holds for one expert: more count as so many."""


@dataclass(frozen=True)
class ProfiledGroup:
    """The experts of one (layer, pass) that were asked for, the hottest first (of equals the lower), and by how many rows each."""

    layer: int
    pass_: str
    n_expert: int
    experts: tuple[int, ...]
    rows: tuple[int, ...]

    def expected(self, n_used: int) -> tuple[tuple[int, int], ...]:
        """Each expert, and of a million tokens how many ask for it when each asks for `n_used`: what `warm` of a plan has."""
        total = sum(self.rows)
        return tuple((expert, min(MILLION, MILLION * n_used * rows // total)) for expert, rows in zip(self.experts, self.rows, strict=True))


@dataclass(frozen=True)
class Profile:
    """Groups in the order of layer and pass; those without a row are left out. `facts` are a trace's: the fingerprint may be empty."""

    facts: Facts
    groups: tuple[ProfiledGroup, ...]

    @property
    def by_place(self) -> dict[tuple[int, str], ProfiledGroup]:
        """The groups by (layer, pass)."""
        return {(group.layer, group.pass_): group for group in self.groups}


def of_heat(facts: Facts, counts: Mapping[tuple[int, str], Sequence[int]]) -> Profile:
    """The profile of rows per expert, [n_expert] of each (layer, pass)."""
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] != "exps"))
    return Profile(facts, tuple(_group(layer, pass_, rows) for (layer, pass_), rows in ordered if any(rows)))


def _group(layer: int, pass_: str, rows: Sequence[int]) -> ProfiledGroup:
    experts = sorted((expert for expert, n in enumerate(rows) if n), key=lambda expert: -rows[expert])
    return ProfiledGroup(layer, pass_, len(rows), tuple(experts), tuple(min(MAX_ROWS, int(rows[expert])) for expert in experts))
