"""The budget of a device with every term: exact integers, bytes. Knows no device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Terms:
    """Bytes on one device. `free` is now, before anything is loaded; `weights`, `kv` and `compute` are llama.cpp's own reservation,
    without the experts; `reserved` is what else will be loaded (draft model, projector, adapters); `rail` stays free whatever happens.

    `wanted` None: as many bytes for slots as there are.
    """

    name: str
    free: int
    weights: int
    kv: int
    compute: int
    reserved: int
    rail: int
    wanted: int | None = None

    @property
    def budget(self) -> int:
        """Bytes for slots."""
        return budget_of(self)


def budget_of(terms: Terms) -> int:
    """Free less every term, never below 0 and never more than was wanted."""
    left = max(0, terms.free - terms.weights - terms.kv - terms.compute - terms.reserved - terms.rail)
    return left if terms.wanted is None else min(left, terms.wanted)
