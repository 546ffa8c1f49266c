"""Decides: slots on devices, in RAM over a disk, or none; whether that pays; and what the plan file says.

Every no-go has its reason. The core measures again when slots are allocated and has the last word on their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slotpool import budget, plan
from slotpool.plan import Group, Off, Plan, staging_bytes
from slotpool.plan.slots import groups_of, wanted_slots
from slotpool.planning.given import Given
from slotpool.predict import AUTO, COPY, CPU, FAULTING, FROM_DISK, Event, Layer, Outlook, Terms, Want, judge, mean_seconds, share_out
from slotpool.reserve import HOST
from slotpool.sizes import format_bytes

DEVICE_RAIL = 1 << 30
"""Bytes of a device that stay free unless told otherwise; the core has the same."""
_WAYS = {"auto": AUTO, "copy": COPY, "cpu": CPU, "frozen": CPU}


@dataclass(frozen=True)
class Decision:
    """`made` is the plan that would be run, or one whose tensors are all off; `terms` the budget of every device."""

    outlook: Outlook
    made: Plan
    terms: tuple[Terms, ...]
    notes: tuple[str, ...] = ()


def decide(given: Given) -> Decision:
    """The decision. Raises SlotpoolError for a trace of another model, or a speed that was not measured."""
    own = [device for device in given.devices if device.type != "IGPU"]
    shared = [device.name for device in given.devices if device.type == "IGPU"]
    notes = tuple(f"{name} shares the host's memory, which is not counted twice" for name in shared)
    if not given.model.experts:
        return _off("the model has no expert tensors (a dense model)", given, (), notes)
    if given.ram_budget is None and own:
        return replace(_on_devices(given, _numbers_of_own(given)), notes=notes)
    if given.ram_budget is None and shared:
        return _off(f"{shared[0]} shares the host's memory: there is no transfer to save", given, (_host_terms(given),), notes)
    return _over_disk(given)


def _numbers_of_own(given: Given) -> list[int]:
    return [index for index, device in enumerate(given.devices) if device.type != "IGPU"]


def _off(reason: str, given: Given, terms: tuple[Terms, ...], notes: tuple[str, ...] = ()) -> Decision:
    made = Plan(off=tuple(Off(tensor.name, f"off: {reason}") for tensor in given.model.experts))
    return Decision(Outlook("no-go", reason), made, terms, notes)


# ---- slots on devices ----


def _on_devices(given: Given, own: Sequence[int]) -> Decision:
    terms = tuple(_device_terms(given, index, is_first=index == own[0]) for index in own)
    if _whole_fits(given, terms):
        return _off("the whole model fits on the device: plain llama.cpp with all layers there is the fastest", given, terms)
    host = given.reservation.of(HOST)
    needed = host.weights + host.kv + host.compute
    if needed > budget.room(given.available):
        what = f"{format_bytes(needed)} stay in host memory, {format_bytes(given.available)} are available"
        return _off(f"{what}: leave the experts on disk with --ram-budget auto", given, terms)
    groups, where = _groups(given, own), _places(given, [one.free for one in terms])
    slots = _slots(given, groups, where, terms, own)
    if not any(slots):
        return _off(f"no budget for what one token uses: {_budgets(terms)} for slots", given, terms)
    layers = [_layer(given, group, terms[place].name, n, terms) for group, place, n in zip(groups, where(groups), slots, strict=True)]
    outlook = judge(layers, given.other_seconds(), _way(given), CPU)
    return Decision(outlook, _device_plan(given, own, terms, groups, slots), terms)


def _device_terms(given: Given, index: int, *, is_first: bool) -> Terms:
    device = given.devices[index]
    reserved, rail = given.reservation.of(device.name), given.rail[index % len(given.rail)]
    wanted, staging = given.device_budget[index % len(given.device_budget)], _staging(given)
    wanted = None if wanted is None else max(0, wanted - staging)
    kept = DEVICE_RAIL if rail is None else rail
    extra = staging + (given.reserved if is_first else 0)
    return Terms(device.name, device.free_bytes, reserved.weights, reserved.kv, reserved.compute, extra, kept, wanted)


def _staging(given: Given) -> int:
    """Bytes of every device that prompts pass through."""
    return 0 if given.prefill == "bypass" else staging_bytes(groups_of(given.model, given.model.n_expert, HOST))


def _whole_fits(given: Given, terms: Sequence[Terms]) -> bool:
    if given.whole is None:
        return False
    whole = [(given.whole.of(one.name), one) for one in terms]
    return all(all_.weights + all_.kv + all_.compute + one.reserved + one.rail <= one.free for all_, one in whole) and any(
        all_.weights for all_, _ in whole
    )


def _groups(given: Given, own: Sequence[int]) -> tuple[Group, ...]:
    most = max(_most(given, index) for index in own)
    return groups_of(given.model, most, given.devices[own[0]].name if len(own) == 1 else "auto")


def _most(given: Given, index: int) -> int:
    slots = given.slots[index % len(given.slots)]
    return min(given.model.n_expert, wanted_slots("all" if slots == "auto" else slots))


class _places:
    """The device of each group, as llama.cpp splits layers when nobody says how: by what is free."""

    def __init__(self, given: Given, free: Sequence[int]) -> None:
        total = max(1, sum(free))
        self._ends = [sum(free[: index + 1]) / total for index in range(len(free))]
        self._n_layer = max(1, given.model.n_layer + 1)

    def __call__(self, groups: Sequence[Group]) -> list[int]:
        last = len(self._ends) - 1
        return [next((i for i, end in enumerate(self._ends) if group.layer / self._n_layer < end), last) for group in groups]


def _slots(given: Given, groups: Sequence[Group], where: _places, terms: Sequence[Terms], own: Sequence[int]) -> list[int]:
    found, places = [0] * len(groups), where(groups)
    for place, one in enumerate(terms):
        mine = [index for index, of in enumerate(places) if of == place]
        wants = [_want(given, groups[index], one.name, _most(given, own[place])) for index in mine]
        tails = budget.DEVICE_TAIL * sum(len(groups[index].tensors) for index in mine)
        for index, n in zip(mine, share_out(wants, one.budget - tails, evenly=given.trace is None), strict=True):
            found[index] = n
    return found


def _want(given: Given, group: Group, device: str, most: int) -> Want:
    curve, rates, event = given.curve(group), given.rates(device), _event(given, group)
    slot_bytes = group.slab_bytes
    return Want(event.n_used, min(most, group.n_expert), slot_bytes, lambda slots: mean_seconds(event, curve(slots), rates, _way(given)))


def _event(given: Given, group: Group) -> Event:
    return Event(min(given.model.n_expert_used, group.n_expert), group.slab_bytes)


def _layer(given: Given, group: Group, device: str, slots: int, terms: Sequence[Terms]) -> Layer:
    """Plain llama.cpp puts whole layers' experts on the devices: the same share of all layers' bytes, all of them hits."""
    placed = min(1.0, sum(one.budget for one in terms) / given.model.expert_bytes)
    return Layer(_event(given, group), given.rates(device), slots, given.curve(group)(slots), placed)


def _way(given: Given) -> str:
    return COPY if given.exact and given.misses == "auto" else _WAYS[given.misses]


def _budgets(terms: Sequence[Terms]) -> str:
    return ", ".join(f"{format_bytes(one.budget)} of {one.name}" for one in terms)


def _device_plan(given: Given, own: Sequence[int], terms: Sequence[Terms], groups: Sequence[Group], slots: Sequence[int]) -> Plan:
    made = plan.make(
        given.model,
        [max(slots)] * len(own),
        policy=given.policy,
        devices=[given.devices[index].name for index in own],
        device_budget=[one.budget + _staging(given) for one in terms],  # the core takes it off again
        misses=given.misses,
        exact=given.exact,
        prefill=given.prefill,
        rail=[one.rail for one in terms],
    )
    # a group without slots stays in the plan: its experts belong into the store, not onto the device
    return replace(made, groups=tuple(replace(group, slots=n) for group, n in zip(made.groups, slots, strict=True)))


# ---- slots in RAM over a disk ----


def _host_terms(given: Given) -> Terms:
    host = given.reservation.of(HOST)
    rail = given.rail[0] if given.rail[0] is not None else budget.default_rail(given.available)
    wanted = given.ram_budget if isinstance(given.ram_budget, int) else None
    return Terms(
        HOST, given.available, max(0, host.weights - given.model.expert_bytes), host.kv, host.compute, given.reserved, rail, wanted
    )


def _over_disk(given: Given) -> Decision:
    terms = _host_terms(given)
    if given.ram_budget is None and terms.budget >= given.model.expert_bytes:
        return _off("there is no device to pool on, and RAM suffices (slots would only double the memory)", given, (terms,))
    groups = groups_of(given.model, _most(given, 0), HOST)
    slabs = [[tensor.slab_bytes for tensor in group.tensors] for group in groups]
    slots = min(_most(given, 0), budget.n_fitting(terms.budget, slabs))
    if slots < given.model.n_expert_used:
        return _off(f"no budget for what one token uses: {format_bytes(terms.budget)} of RAM for slots and their ring", given, (terms,))
    cached = min(1.0, terms.budget / given.model.expert_bytes)  # the page cache has what slots would have
    layers = [_disk_layer(given, group, min(slots, group.n_expert), cached) for group in groups]
    outlook = judge(layers, given.other_seconds(), FROM_DISK, FAULTING)
    made = plan.make(
        given.model,
        given.slots[0] if given.slots[0] != 0 else "auto",
        policy=given.policy,
        misses="copy" if given.misses == "auto" else given.misses,
        ram_budget=terms.budget,
        rail=terms.rail,
        available=given.available,
    )
    memory = replace(made.memory, reserve=terms.compute) if made.memory else None  # made by then, and not touched yet
    return Decision(outlook, replace(made, groups=_as_fitting(made.groups, slots), memory=memory), (terms,))


def _as_fitting(groups: Sequence[Group], slots: int) -> tuple[Group, ...]:
    return tuple(replace(group, slots=min(slots, group.slots)) for group in groups)


def _disk_layer(given: Given, group: Group, slots: int, cached: float) -> Layer:
    """Plain llama.cpp's page cache is an LRU of the same bytes, as far as pages of an expert go together."""
    plain = given.curve(group, "lru")(int(cached * group.n_expert))
    return Layer(_event(given, group), given.rates(HOST), slots, given.curve(group)(slots), plain)
