"""Slots in RAM, experts on disk: whether that pays against mapping the file, whose pages the system caches in the same bytes.

Knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slotpool import budget, plan
from slotpool.plan import Group, Plan, PlannedMemory
from slotpool.planning.claims import by_claim, cut
from slotpool.planning.decision import Decision, host_terms, off, with_slots
from slotpool.planning.given import Given
from slotpool.predict import FAULTING, FROM_DISK, Layer, Want, judge, mean_seconds
from slotpool.reserve import HOST
from slotpool.sizes import format_bytes

RAM_SUFFICES = "there is no device to pool on, and RAM suffices (slots would only double the memory)"


def over_disk(given: Given) -> Decision:
    """The decision for slots in RAM over a disk."""
    terms = host_terms(given)
    if given.ram_budget is None and terms.budget >= given.model.expert_bytes:
        return off(RAM_SUFFICES, given, (terms,))
    made = _most_over_disk(given)
    slabs = slabs_of(made.groups)
    left = terms.budget - budget.needed(slabs, [0] * len(slabs))
    wants = [_disk_want(given, group) for group in made.groups]
    slots = by_claim(wants, [group.claim for group in made.groups], left, evenly=given.trace is None)
    if not all(slots):
        return off(f"no budget for what one token uses: {format_bytes(terms.budget)} of RAM for slots and their ring", given, (terms,))
    cached = min(1.0, terms.budget / given.model.expert_bytes)  # the page cache has what slots would have
    layers = [_disk_layer(given, group, n, cached) for group, n in zip(made.groups, slots, strict=True)]
    outlook = judge(layers, given.other_seconds(), FROM_DISK, FAULTING, given.other_seconds(is_mapped=True))
    memory = PlannedMemory(terms.budget, terms.rail, reserve=terms.compute)  # compute buffers are made by then, and not touched yet
    planned = plan.repacked(replace(with_slots(made, slots), memory=memory), given.repack)
    return Decision(outlook, planned, (terms,), cut(made.groups, slots))


def _most_over_disk(given: Given) -> Plan:
    """The plan with as many slots as every tensor may have at most; nothing is asked of the memory yet."""
    return plan.make(
        given.model,
        given.slots[0] if given.slots[0] != 0 else "auto",
        policy=given.policy,
        misses="copy" if given.misses == "auto" else given.misses,
        ram_budget="auto",
        slots_per_layer=given.slots_per_layer,
        slots_per_role=given.slots_per_role,
    )


def slabs_of(groups: Sequence[Group]) -> list[list[int]]:
    """Slab sizes by group and tensor."""
    return [[tensor.slab_bytes for tensor in group.tensors] for group in groups]


def _disk_want(given: Given, group: Group) -> Want:
    curve, rates, event = given.curve(group, way=FROM_DISK), given.rates(HOST), given.event(group)
    n_bytes = sum(budget.slot_bytes(tensor.slab_bytes) for tensor in group.tensors)
    return Want(event.n_used, group.slots, n_bytes, lambda slots: mean_seconds(event, curve(slots), rates, FROM_DISK))


def _disk_layer(given: Given, group: Group, slots: int, cached: float) -> Layer:
    """Plain llama.cpp's page cache is an LRU of the same bytes, as far as pages of an expert go together."""
    plain = given.curve(group, "lru")(int(cached * group.n_expert))
    return Layer(given.event(group), given.rates(HOST), slots, given.curve(group, way=FROM_DISK)(slots), plain)
