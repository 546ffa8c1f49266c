"""Whose slots come first: tensors that are wholly in slots, numbers that a user gave, and then the others by what a slot saves.

Knows no device: wants, claims and bytes are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slotpool.plan import DYNAMIC, EXPLICIT, WHOLE, Group
from slotpool.predict import Want, share_out


def by_claim(wants: Sequence[Want], claims: Sequence[str], n_bytes: int, *, evenly: bool) -> list[int]:
    """Slots of each want out of `n_bytes`: claim after claim, each from what the one before left. What was asked for is scaled down evenly
    where it does not fit (the core does the same, `core/plan/fit.h`); the others get theirs as `share_out` has it."""
    slots, left = [0] * len(wants), max(0, n_bytes)
    for claim in (WHOLE, EXPLICIT, DYNAMIC):
        mine = [index for index, of in enumerate(claims) if of == claim]
        found = share_out([_possible(wants[index]) for index in mine], left, evenly=evenly or claim != DYNAMIC)
        for index, n in zip(mine, found, strict=True):
            slots[index] = n
            left -= n * wants[index].slot_bytes
    return slots


def _possible(want: Want) -> Want:
    """Nobody's least is more than the most that was asked for, 0 for none."""
    return replace(want, least=min(want.least, want.most))


def cut(groups: Sequence[Group], slots: Sequence[int]) -> tuple[str, ...]:
    """A line for each number that was asked for by layer or role and does not fit."""
    asked = [(group, n) for group, n in zip(groups, slots, strict=True) if group.claim != DYNAMIC and n < group.slots]
    if not asked:
        return ()
    worst = min(n / group.slots for group, n in asked)
    return (f"slots that were asked for do not fit: {len(asked)} of {len(groups)} pools are scaled down evenly, to {worst:.0%} at least",)
