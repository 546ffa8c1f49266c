"""Makes plans: chooses between slots in RAM over a disk, slots on devices, and none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from slotpool import policies
from slotpool.errors import SlotpoolError, quoted, unknown
from slotpool.model import Model
from slotpool.plan.asked import Asked, PerLayer, PerRole, applied, asked_of
from slotpool.plan.devices import on_devices
from slotpool.plan.disk import behind_devices, fits, on_disk, planned_files
from slotpool.plan.facts import MISSES, POLICIES, PREFILL, Off, OnePerDevice, Plan, RamBudget, Slots
from slotpool.plan.slots import all_off, check_slots, few_slots, groups_of, wanted_slots

_Value = TypeVar("_Value")
_MAX_BYTES = 2**62
"""What the core takes for a size."""
_DRAFTING = "off: its layer only drafts (MTP), and drafts have no pool"
_AUTO_OFF = "off: no device to pool on, and RAM suffices (slots would only double the memory)"


def make(
    model: Model,
    slots: Slots | Sequence[Slots],
    *,
    policy: str = "default",
    poison: bool = False,
    devices: Sequence[str] = (),
    device_budget: OnePerDevice = None,
    misses: str = "auto",
    exact: bool = False,
    prefill: str = "bypass",
    ram_budget: RamBudget = None,
    rail: OnePerDevice = None,
    available: int | None = None,
    slots_per_layer: PerLayer = None,
    slots_per_role: PerRole = None,
) -> Plan:
    """The plan that gives every expert tensor of `model` the same number of slots, at most as many as it has experts.

    `slots_per_layer` and `slots_per_role` say otherwise for some: they come before the others when not all fit, tensors that are wholly in
    slots first. A layer's own number comes before its roles'; tensors of a layer with different numbers have slot tables of their own.

    With `devices` (ggml's names, not the CPU) slots are there and experts in host memory; `slots`, `device_budget` and `rail` are one
    value, or one for each device. With one device all layers have their slots on it; with several each layer on its own. `auto` is as
    many slots as fit. With `ram_budget` as well there are two tiers: experts stay on disk, and the budget holds slots in RAM between it
    and the devices, as many as fit; RAM keeps its default rail.
    Without devices, `ram_budget` leaves experts on disk and `slots` is the most a tensor gets (`auto`: all its experts); the core scales
    all down to what fits. Without both, `auto` is off where the weights and the rail fit into the `available` bytes (slots would only
    double the memory), and means `ram_budget="auto"` where they do not.
    `misses` is one of MISSES; `exact` forbids those whose rows another device's kernels compute. Budgets and rails are bytes; None is
    what is free, and the default rail. `prefill` is one of PREFILL; over a disk and without devices there is nothing to choose, so
    `auto` is `bypass` there and `stream` an error.

    Raises SlotpoolError for slots that one token cannot use, a budget that cannot hold them, a file that is not what `model` was
    read from, an unknown word or policy. Fewer slots than twice what a token uses is a warning, and so is a budget that will be cut.
    """
    _check_words(policy, misses, exact, bool(devices))
    _check_prefill(prefill, (bool(devices) and ram_budget is None) or slots == 0)
    _check_bytes(device_budget, "--device-budget")
    _check_bytes(rail, "--rail")
    _check_bytes(ram_budget, "--ram-budget", ("auto",))
    name = policies.DEFAULT if policy == "default" else policy
    if not model.experts:
        return Plan(policy=name)
    drafting = [tensor for tensor in model.experts if tensor.layer in model.drafting_layers]
    trunk = replace(model, experts=tuple(tensor for tensor in model.experts if tensor.layer not in model.drafting_layers))
    asked = asked_of(trunk, slots_per_layer, slots_per_role)

    def planned(asked_slots: Slots | Sequence[Slots]) -> Plan:
        return _of_trunk(trunk, asked_slots, name, poison, devices, device_budget, misses, exact, ram_budget, rail, available)

    made = _with_asked(planned, slots, asked, trunk) if asked else planned(slots)
    passes = prefill if made.devices and not made.files else "bypass"
    return replace(made, prefill=passes, off=made.off + tuple(Off(tensor.name, _DRAFTING) for tensor in drafting))


def _with_asked(planned: Callable[[Slots | Sequence[Slots]], Plan], slots: Slots | Sequence[Slots], asked: Asked, model: Model) -> Plan:
    """The plan with slots by layer and role; where there would be none otherwise, the others have none."""
    made = planned(slots) if _has_slots(slots) else all_off(model, "", "off: 0 slots asked for")
    off_else = "" if made.groups else made.reason
    return applied(planned("all") if off_else else made, asked, model, off_else)


def _of_trunk(
    model: Model,
    slots: Slots | Sequence[Slots],
    policy: str,
    poison: bool,
    devices: Sequence[str],
    device_budget: OnePerDevice,
    misses: str,
    exact: bool,
    ram_budget: RamBudget,
    rail: OnePerDevice,
    available: int | None,
) -> Plan:
    if devices:
        served = "copy" if exact and misses == "auto" else misses
        if ram_budget is None or not _has_slots(slots):
            return on_devices(model, slots, devices, policy, poison, served, device_budget, rail)
        memory, warnings = behind_devices(model, ram_budget, available)
        made = on_devices(model, slots, devices, policy, poison, served, device_budget, rail, planned_files(model), memory)
        return replace(made, warnings=warnings + made.warnings)
    one: Slots = _one(cast(Any, slots), "--slots")
    return _on_host(model, one, policy, poison, misses, ram_budget, _one(rail, "--rail"), available)


def _has_slots(slots: Slots | Sequence[Slots]) -> bool:
    return any(one != 0 for one in (slots if isinstance(slots, list | tuple) else [slots]))


def _on_host(
    model: Model,
    slots: Slots,
    policy: str,
    poison: bool,
    misses: str,
    ram_budget: RamBudget,
    rail: int | None,
    available: int | None,
) -> Plan:
    wanted = wanted_slots(slots)
    if ram_budget is not None or (slots == "auto" and not fits(model, rail, available)):
        if misses in ("cpu", "frozen"):
            raise SlotpoolError(
                f"expected misses that are copied, since experts stay on disk, found {misses}", where="--miss", do="Try copy."
            )
        return on_disk(model, slots, policy, poison, ram_budget, rail, available)
    warnings = _rail_unused(slots, rail)
    if wanted == 0:
        return all_off(model, policy, _AUTO_OFF if slots == "auto" else "off: 0 slots asked for", warnings)
    check_slots(model, wanted)
    made = Plan(groups=groups_of(model, wanted, "CPU"), policy=policy, poison=poison, warnings=warnings + few_slots(model, wanted))
    return replace(made, misses="copy" if misses == "auto" else misses)


def _one(value: _Value | Sequence[_Value], where: str) -> _Value:
    values: list[_Value] = list(value) if isinstance(value, list | tuple) else [cast(_Value, value)]
    if len(values) != 1:
        raise SlotpoolError(
            f"expected one value, since there is no device with slots, found {len(values)}", where=where, do="Try --device."
        )
    return values[0]


def _check_words(policy: str, misses: str, exact: bool, has_devices: bool) -> None:
    if policy not in POLICIES:
        raise unknown("policy", str(policy), POLICIES, where="--policy")
    if misses not in MISSES:
        raise unknown("way to serve misses", str(misses), MISSES, where="--miss")
    if exact and has_devices and misses in ("cpu", "frozen"):
        raise SlotpoolError(
            f"expected misses on the device's own kernels, found --miss {misses} with --exact", where="--exact", do="Try --miss copy."
        )


def _check_prefill(prefill: str, may_stream: bool) -> None:
    if prefill not in PREFILL:
        raise unknown("way of prompts", str(prefill), PREFILL, where="--prefill")
    if prefill == "stream" and not may_stream:
        raise SlotpoolError(
            "expected slots on a device and experts in host memory for prompts that stream, found no such pool",
            where="--prefill",
            do="Try --device, without --ram-budget, or --prefill auto.",
        )


def _check_bytes(given: object, where: str, words: tuple[str, ...] = ()) -> None:
    for value in given if isinstance(given, list | tuple) and not words else (given,):
        is_bytes = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_BYTES
        if value is not None and not is_bytes and value not in words:
            expected = " or ".join(("a number of bytes", *words))
            raise SlotpoolError(f"expected {expected}, found {quoted(repr(value))}", where=where)


def _rail_unused(slots: Slots, rail: int | None) -> tuple[str, ...]:
    if rail is None or slots == "auto":
        return ()
    return ("a rail has no effect without a RAM budget: the whole model is loaded",)
