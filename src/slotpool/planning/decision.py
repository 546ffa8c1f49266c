"""What a decision is, and the parts of one that every kind of placement shares: budgets by place, slots of a plan, the event of a group.

Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slotpool import budget
from slotpool.plan import Off, Plan, staging_bytes
from slotpool.plan.slots import groups_of
from slotpool.planning.given import Given
from slotpool.predict import AUTO, COPY, CPU, Outlook, Terms
from slotpool.reserve import HOST

DEVICE_RAIL = 1 << 30
"""Bytes of a device that stay free unless told otherwise; the core has the same."""
_WAYS = {"auto": AUTO, "copy": COPY, "cpu": CPU, "frozen": CPU}


@dataclass(frozen=True)
class Decision:
    """`made` is the plan that would be run, or one whose tensors are all off; `terms` the budget of every device.

    `ram_slots` are the slots in RAM behind each group of a plan with two tiers. `host_layers` are the layers whose experts plain llama.cpp
    leaves in host memory where it has the devices' budgets for whole layers; None where everything fits, or there is no device.
    """

    outlook: Outlook
    made: Plan
    terms: tuple[Terms, ...]
    notes: tuple[str, ...] = ()
    ram_slots: tuple[int, ...] = ()
    host_layers: tuple[int, ...] | None = None


def off(reason: str, given: Given, terms: tuple[Terms, ...], notes: tuple[str, ...] = ()) -> Decision:
    """A no-go without a prediction."""
    made = Plan(off=tuple(Off(tensor.name, f"off: {reason}") for tensor in given.model.experts))
    return Decision(Outlook("no-go", reason), made, terms, notes)


def device_terms(given: Given, index: int, *, is_first: bool) -> Terms:
    """The budget of a device. What else will be loaded is on the first."""
    device = given.devices[index]
    reserved, rail = given.reservation.of(device.name), given.rail[index % len(given.rail)]
    wanted, staging = given.device_budget[index % len(given.device_budget)], staging_of(given)
    wanted = None if wanted is None else max(0, wanted - staging)
    kept = DEVICE_RAIL if rail is None else rail
    extra = staging + (given.reserved if is_first else 0)
    return Terms(device.name, device.free_bytes, reserved.weights, reserved.kv, reserved.compute, extra, kept, wanted)


def staging_of(given: Given) -> int:
    """Bytes of every device that prompts pass through; with experts on disk none."""
    passes = given.prefill != "bypass" and given.ram_budget is None
    return staging_bytes(groups_of(given.model, given.model.n_expert, HOST)) if passes else 0


def host_terms(given: Given, *, behind_devices: bool = False) -> Terms:
    """The budget of RAM for slots whose experts stay on disk. Behind devices the rail and what else will be loaded are the devices'."""
    host = given.reservation.of(HOST)
    own = None if behind_devices else given.rail[0]
    rail = budget.default_rail(given.available) if own is None else own
    wanted = given.ram_budget if isinstance(given.ram_budget, int) else None
    extra = 0 if behind_devices else given.reserved
    return Terms(HOST, given.available, max(0, host.weights - given.model.expert_bytes), host.kv, host.compute, extra, rail, wanted)


def way_of(given: Given) -> str:
    """How misses of a device are served, as `predict` names it."""
    return COPY if given.exact and given.misses == "auto" else _WAYS[given.misses]


def with_slots(made: Plan, slots: Sequence[int]) -> Plan:
    """The plan with so many slots of each group."""
    # a group without slots stays in the plan: its experts belong into the store, not onto the device
    groups = tuple(replace(group, slots=n) for group, n in zip(made.groups, slots, strict=True))
    devices = tuple(replace(one, slots=max(slots) if one.slots else 0) for one in made.devices)
    return replace(made, groups=groups, devices=devices)
