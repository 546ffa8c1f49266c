"""Plans with slots on devices other than the CPU; the experts stay in host memory.

Asks no device anything: what one has is measured when slots are allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

from slotpool.errors import SlotpoolError
from slotpool.model import Model
from slotpool.plan.facts import OnePerDevice, Plan, PlannedDevice, Slots
from slotpool.plan.slots import all_off, check_slots, few_slots, groups_of, wanted_slots, with_biases

_One = TypeVar("_One")
MAX_DEVICES = 6
"""A scheduler of the engine takes 16 backends; a pooled device is two of them."""


def on_devices(
    model: Model,
    slots: Slots | Sequence[Slots],
    devices: Sequence[str],
    policy: str,
    poison: bool,
    misses: str,
    device_budget: OnePerDevice,
    rail: OnePerDevice,
) -> Plan:
    """The plan with slots on `devices`. Arguments as of `make`. With several, each layer's slots are where the layer lives."""
    _check_names(devices)
    asked: list[Slots] = one_each(slots, devices, "--slots")
    wanted = [wanted_slots("all" if one == "auto" else one) for one in asked]
    if not any(wanted):
        return all_off(model, policy, "off: 0 slots asked for")
    for one in wanted:
        if one:
            check_slots(model, one)
    budgets = one_each(device_budget, devices, "--device-budget")
    rails = one_each(rail, devices, "--rail")
    most = [min(one, model.n_expert) for one in wanted]
    useful = min(2 * model.n_expert_used, model.n_expert)
    fewest = [useful if one == "auto" else slots_of for one, slots_of in zip(asked, most, strict=True)]
    groups = groups_of(model, max(most), devices[0] if len(devices) == 1 else "auto")
    return Plan(
        groups=with_biases(groups, model),
        policy=policy,
        poison=poison,
        warnings=few_slots(model, min(one for one in wanted if one)),
        devices=tuple(map(PlannedDevice, devices, most, budgets, rails, fewest)),
        misses=misses,
    )


def one_each(value: _One | Sequence[_One], devices: Sequence[str], where: str) -> list[_One]:
    """A value for each device: one for all of them, or as many as there are devices. SlotpoolError for another number."""
    values: list[_One] = list(value) if isinstance(value, list | tuple) else [cast(_One, value)]
    if len(values) == 1:
        return values * len(devices)
    if len(values) != len(devices):
        names = ", ".join(devices)
        raise SlotpoolError(f"expected one value, or one for each of {names}, found {len(values)}", where=where)
    return values


def _check_names(devices: Sequence[str]) -> None:
    if len(devices) > MAX_DEVICES:
        raise SlotpoolError(f"expected at most {MAX_DEVICES} devices with slots, found {len(devices)}", where="--device")
    for name in devices:
        if name in ("CPU", "auto") or devices.count(name) > 1:
            found = f'"{name}" among {len(devices)} devices' if devices.count(name) == 1 else f'"{name}" twice'
            raise SlotpoolError(f"expected names of different devices other than the CPU, found {found}", where="--device")
