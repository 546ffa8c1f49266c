"""Slots on devices, behind them slots in RAM, behind these the file: how many of each, and whether that pays.

The RAM tier hears of what the device did not have, so both together hold what so many slots of one pool would
(docs/design/devices.md). Plain llama.cpp has whole layers on the device, and the page cache for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slotpool import budget
from slotpool.plan import Group, PlannedMemory
from slotpool.planning.claims import cut
from slotpool.planning.decision import Decision, device_terms, host_terms, off, way_of, with_slots
from slotpool.planning.given import Given
from slotpool.planning.on_devices import WHOLE_FITS, Places, budgets_of, device_slots, host_layers, most_on_devices, whole_fits
from slotpool.planning.over_disk import slabs_of
from slotpool.predict import FAULTING, Layer, Terms, Tiers, judge
from slotpool.reserve import HOST
from slotpool.sizes import format_bytes

_MOST_WAVES = 64 << 20
_WAVES_SHARE = 4
"""Room for experts that pass through RAM without a slot: at most the first, and one part in so many (`core/dispatch/allotment.cpp`)."""


def two_tiers(given: Given, own: Sequence[int]) -> Decision:
    """The decision for the devices of these numbers, with experts on disk."""
    terms = tuple(device_terms(given, index, is_first=index == own[0]) for index in own)
    ram = host_terms(given, behind_devices=True)
    every = (*terms, ram)
    if given.ram_budget == "auto" and whole_fits(given, terms):
        return replace(off(WHOLE_FITS, given, every), host_layers=())
    made = most_on_devices(given, own, terms, over_disk=True)
    if not made.groups:
        return off(made.reason.removeprefix("off: "), given, every)
    smallest = budget.needed_behind_device(slabs_of(made.groups))
    if ram.budget < smallest:
        return off(f"an expert that is computed and one that is read need {format_bytes(smallest)} of RAM", given, every)
    where = Places(given, [one.free for one in terms])(made.groups)
    slots = device_slots(given, made.groups, where, terms, own)
    if not any(slots):
        return off(f"no budget for what one token uses: {budgets_of(terms)} for slots", given, every)
    behind = ram_slots(made.groups, ram.budget)
    slots = [max(n, given.event(group).n_used) for n, group in zip(slots, made.groups, strict=True)]  # none would be on no device
    numbers = zip(made.groups, where, slots, behind, strict=True)
    layers = [_layer(given, group, terms[place].name, n, more, _in_same_bytes(given, terms, ram)) for group, place, n, more in numbers]
    outlook = judge(layers, given.other_seconds(), way_of(given), FAULTING, given.other_seconds(is_mapped=True))
    even = max((one.rates.break_even for one in layers), default=0.0)
    memory = PlannedMemory(ram.budget, None, reserve=ram.compute)
    return Decision(
        replace(outlook, break_even_hit_rate=even if outlook.predicted else None),
        replace(with_slots(made, slots), memory=memory),
        every,
        cut(made.groups, slots),
        tuple(behind),
        host_layers(given, where, made.groups, terms),
    )


def ram_slots(groups: Sequence[Group], n_bytes: int) -> list[int]:
    """Slots in RAM behind each group, evenly and at most every expert: what is left beside the room for experts on their way."""
    slabs = slabs_of(groups)
    per_slot = sum(budget.slot_bytes(slab) for of in slabs for slab in of)
    n = max(0, n_bytes - max(map(_wave_bytes, groups, [n_bytes] * len(groups)))) // per_slot if per_slot else 0
    return [min(n, group.n_expert) for group in groups]


def _wave_bytes(group: Group, n_bytes: int) -> int:
    """Room for experts of the group that are on their way, half of them read while the others are computed."""
    pair = budget.needed_behind_device(slabs_of([group]))
    return pair * min(max(1, min(_MOST_WAVES, n_bytes // _WAVES_SHARE) // pair), group.n_expert)


def _in_same_bytes(given: Given, terms: Sequence[Terms], ram: Terms) -> tuple[float, float]:
    """What plain llama.cpp has in the same bytes: the share of all experts on devices, and of the others in the page cache."""
    placed = min(1.0, sum(one.budget for one in terms) / given.model.expert_bytes)
    rest = given.model.expert_bytes * (1.0 - placed)
    return placed, min(1.0, ram.budget / rest) if rest else 1.0


def _layer(given: Given, group: Group, device: str, slots: int, behind: int, plain: tuple[float, float]) -> Layer:
    """A miss of the device is a miss of RAM too as often as a pool of both sizes would miss it."""
    filled, placed, cached = given.filled(group, way=way_of(given), device=device), *plain
    found, both = filled(slots), filled(min(slots + behind, group.n_expert)).hit_rate
    disk = given.rates(HOST)
    rates = replace(given.rates(device), disk=disk.disk, faults=disk.faults, plain_cpu=None)  # what is mapped is never repacked
    from_disk = (1.0 - both) / (1.0 - found.hit_rate) if found.hit_rate < 1.0 else 0.0
    in_cache = given.curve(group, "lru")(int(cached * group.n_expert))
    return Layer(given.event(group), rates, slots, found.hit_rate, in_cache, Tiers(from_disk, placed), found.waits)
