"""Slots on devices, experts in host memory: whether that pays against whole layers there, which plain llama.cpp can have.

Knows no RAM budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slotpool import budget, plan
from slotpool.plan import Group, Plan
from slotpool.plan.slots import wanted_slots
from slotpool.planning.claims import by_claim, cut
from slotpool.planning.decision import Decision, device_terms, off, staging_of, way_of, with_slots
from slotpool.planning.given import Given
from slotpool.predict import CPU, Layer, Terms, Want, judge, mean_seconds
from slotpool.sizes import format_bytes

WHOLE_FITS = "the whole model fits on the device: plain llama.cpp with all layers there is the fastest"


def on_devices(given: Given, own: Sequence[int]) -> Decision:
    """The decision for slots on the devices of these numbers."""
    terms = tuple(device_terms(given, index, is_first=index == own[0]) for index in own)
    if whole_fits(given, terms):
        return replace(off(WHOLE_FITS, given, terms), host_layers=())
    made = most_on_devices(given, own, terms)
    if not made.groups:
        return replace(off(made.reason.removeprefix("off: "), given, terms), host_layers=tuple(given.model.layers))
    where = Places(given, [one.free for one in terms])(made.groups)
    slots = device_slots(given, made.groups, where, terms, own)
    if not any(slots):
        none = off(_why_none(given, made.groups, where, terms), given, terms)
        return replace(none, host_layers=host_layers(given, where, made.groups, terms))
    layers = [_layer(given, group, terms[place].name, n, terms) for group, place, n in zip(made.groups, where, slots, strict=True)]
    outlook = judge(layers, given.other_seconds(), way_of(given), CPU)
    left = host_layers(given, where, made.groups, terms)
    return Decision(outlook, with_slots(made, slots), terms, cut(made.groups, slots), host_layers=left)


def most_on_devices(given: Given, own: Sequence[int], terms: Sequence[Terms], *, over_disk: bool = False) -> Plan:
    """The plan with as many slots as every tensor may have at most, whether they fit or not."""
    return plan.make(
        given.model,
        ["all" if given.slots[index % len(given.slots)] == "auto" else given.slots[index % len(given.slots)] for index in own],
        policy=given.policy,
        devices=[given.devices[index].name for index in own],
        device_budget=[one.budget + staging_of(given) for one in terms],  # the core takes it off again
        misses=given.misses,
        exact=given.exact,
        prefill=given.prefill,
        rail=[one.rail for one in terms],
        ram_budget="auto" if over_disk else None,
        slots_per_layer=given.slots_per_layer,
        slots_per_role=given.slots_per_role,
    )


def whole_fits(given: Given, terms: Sequence[Terms]) -> bool:
    """Whether everything has room on the devices, as llama.cpp itself would place it."""
    if given.whole is None:
        return False
    whole = [(given.whole.of(one.name), one) for one in terms]
    return all(all_.weights + all_.kv + all_.compute + one.reserved + one.rail <= one.free for all_, one in whole) and any(
        all_.weights for all_, _ in whole
    )


def _most(given: Given, index: int) -> int:
    slots = given.slots[index % len(given.slots)]
    return min(given.model.n_expert, wanted_slots("all" if slots == "auto" else slots))


class Places:
    """The device of each group, as llama.cpp splits layers when nobody says how: by what is free."""

    def __init__(self, given: Given, free: Sequence[int]) -> None:
        total = max(1, sum(free))
        self._ends = [sum(free[: index + 1]) / total for index in range(len(free))]
        self._n_layer = max(1, given.model.n_layer + 1)

    def __call__(self, groups: Sequence[Group]) -> list[int]:
        last = len(self._ends) - 1
        return [next((i for i, end in enumerate(self._ends) if group.layer / self._n_layer < end), last) for group in groups]


def _why_none(given: Given, groups: Sequence[Group], where: Sequence[int], terms: Sequence[Terms]) -> str:
    least = [given.event(group).n_used * group.slab_bytes + budget.DEVICE_TAIL * len(group.tensors) for group in groups]
    if any(n_bytes <= terms[place].budget for n_bytes, place in zip(least, where, strict=True)):
        return f"slots would not pay: none of the {budgets_of(terms)} saves enough for its bytes with this routing"
    return f"no budget for what one token uses: {budgets_of(terms)} for slots"


def host_layers(given: Given, where: Sequence[int], groups: Sequence[Group], terms: Sequence[Terms]) -> tuple[int, ...]:
    """The layers whose experts do not fit their device's budget when whole layers are put there in their order."""
    home = {group.layer: place for group, place in zip(groups, where, strict=True)}
    left = [one.budget for one in terms]
    staying = []
    for layer, tensors in given.model.layers.items():
        place, n_bytes = home.get(layer, 0), sum(tensor.n_bytes for tensor in tensors)
        if n_bytes > left[place]:
            staying.append(layer)
        else:
            left[place] -= n_bytes
    return tuple(staying)


def device_slots(given: Given, groups: Sequence[Group], where: Sequence[int], terms: Sequence[Terms], own: Sequence[int]) -> list[int]:
    """Slots of each group on its device, claim after claim."""
    found = [0] * len(groups)
    for place, one in enumerate(terms):
        mine = [index for index, of in enumerate(where) if of == place]
        most = _most(given, own[place])
        wants = [_want(given, groups[index], one.name, most) for index in mine]
        tails = budget.DEVICE_TAIL * sum(len(groups[index].tensors) for index in mine)
        claims = [groups[index].claim for index in mine]
        for index, n in zip(mine, by_claim(wants, claims, one.budget - tails, evenly=given.trace is None), strict=True):
            found[index] = n
    return found


def _want(given: Given, group: Group, device: str, most: int) -> Want:
    found, rates, event = given.filled(group, way=way_of(given), device=device), given.rates(device), given.event(group)
    wanted = min(most, group.slots) if group.claim == plan.DYNAMIC else group.slots

    def seconds(slots: int) -> float:
        """Without slots nothing is copied: the CPU computes the layer's experts."""
        at = found(slots)
        return at.waits + mean_seconds(event, at.hit_rate, rates, way_of(given)) if slots else mean_seconds(event, 0.0, rates, CPU)

    return Want(event.n_used, wanted, group.slab_bytes, seconds)


def _layer(given: Given, group: Group, device: str, slots: int, terms: Sequence[Terms]) -> Layer:
    """Plain llama.cpp puts whole layers' experts on the devices: the same share of all layers' bytes, all of them hits."""
    placed = min(1.0, sum(one.budget for one in terms) / given.model.expert_bytes)
    found = given.filled(group, way=way_of(given), device=device)(slots)
    return Layer(given.event(group), given.rates(device), slots, found.hit_rate, placed, waits=found.waits)


def budgets_of(terms: Sequence[Terms]) -> str:
    """The budgets as a user reads them."""
    return ", ".join(f"{format_bytes(one.budget)} of {one.name}" for one in terms)
