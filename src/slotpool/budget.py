"""Budgets: how many bytes slots may take, what stays free, and how many slots that is.

Pure arithmetic: asks no system, knows no engine, and decides nothing. The core measures again when slots are allocated and has the
last word (`core/plan/fit.h`); these are the numbers that are known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Groups: TypeAlias = Sequence[Sequence[int]]
"""Slab sizes in bytes, by group and tensor."""
MIN_RAIL = 64 * 2**20
RAIL_SHARE = 50
"""The rail of a RAM budget is the larger of MIN_RAIL and available / RAIL_SHARE, 2 % (docs/design/disk.md; the core has the same)."""
BLOCK = 4096
"""Bytes. Offset, length and address of a direct read are multiples of the disk's block: 512 or, at most, this."""
TAIL = 4096
"""Bytes. Slots of a tensor end with a finite tail, and the next tensor's begin on a page (`core/transfer/slot_memory.cpp`)."""
DEVICE_TAIL = 512
"""Bytes. The same on a device (`core/transfer/device_slots.cpp`)."""
RUNS_IN_RING = 4
LEAST_RING = 32 * 2**20
"""The ring that a prompt's experts pass through is a part of the budget (`core/transfer/slab_stream.cpp`)."""


def default_rail(available: int) -> int:
    """Bytes that stay free of `available` when nobody says how many."""
    return max(MIN_RAIL, available // RAIL_SHARE)


def room(available: int, rail: int | None = None, wanted: int | None = None) -> int:
    """Bytes for slots: `wanted`, or everything, but never more than `available` less the rail. `rail` None is the default rail."""
    left = max(0, available - (default_rail(available) if rail is None else rail))
    return left if wanted is None else min(left, wanted)


def slot_bytes(slab_bytes: int, block: int = BLOCK) -> int:
    """Bytes of a slot whose slab is read directly, with the blocks around it, wherever in a block it begins.

    A slab of n bytes that begins at byte s < block takes (s + n) bytes, rounded up; the largest for s = block - 1.
    """
    return (slab_bytes + 2 * (block - 1)) // block * block


def ring_bytes(groups: Groups) -> int:
    """Bytes of the ring: RUNS_IN_RING reads of the largest slab, each on a page of its own."""
    largest = max((slab for slabs in groups for slab in slabs), default=1)
    return max(LEAST_RING, RUNS_IN_RING * (slot_bytes(largest) + BLOCK))


def needed(groups: Groups, n_slots: Sequence[int]) -> int:
    """Bytes of a budget for so many slots, by group: the slots, their tails and the ring."""
    slots = sum(n * slot_bytes(slab) + TAIL for slabs, n in zip(groups, n_slots, strict=True) for slab in slabs)
    return slots + ring_bytes(groups)


def needed_behind_device(groups: Groups) -> int:
    """Bytes of the smallest RAM between a disk and a device: room for two experts of any layer (`core/transfer/slab_waves.cpp`)."""
    return 2 * max((sum(-(-slot_bytes(slab) // TAIL) * TAIL for slab in slabs) for slabs in groups), default=0)


def n_fitting(n_bytes: int, groups: Groups) -> int:
    """Slots that every group gets of a budget of `n_bytes` when all get the same number."""
    per_slot = sum(slot_bytes(slab) for slabs in groups for slab in slabs)
    return max(0, n_bytes - needed(groups, [0] * len(groups))) // per_slot if per_slot else 0


def as_option(n_bytes: int) -> str:
    """The smallest size of at least `n_bytes` that reads well as the value of an option: whole MiB, whole KiB where that is coarse."""
    unit, name = (2**20, "MiB") if n_bytes >= 16 * 2**20 else (2**10, "KiB")
    return f"{-(-n_bytes // unit)}{name}"
