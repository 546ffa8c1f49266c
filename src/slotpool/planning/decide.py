"""Decides: slots on devices, in RAM over a disk, on both, or none; whether that pays; and what the plan file says.

Every no-go has its reason. The core measures again when slots are allocated and has the last word on their number.
"""

from __future__ import annotations

from dataclasses import replace

from slotpool import budget
from slotpool.planning.decision import Decision, host_terms, off
from slotpool.planning.given import Given
from slotpool.planning.on_devices import on_devices
from slotpool.planning.over_disk import over_disk
from slotpool.planning.two_tiers import two_tiers
from slotpool.reserve import HOST
from slotpool.sizes import format_bytes


def decide(given: Given) -> Decision:
    """The decision. Raises SlotpoolError for a trace of another model, or a speed that was not measured."""
    own = [index for index, device in enumerate(given.devices) if device.type != "IGPU"]
    shared = [device.name for device in given.devices if device.type == "IGPU"]
    notes = tuple(f"{name} shares the host's memory, which is not counted twice" for name in shared)
    found = _decided(given, own, shared)
    return replace(found, notes=notes + found.notes)


def _decided(given: Given, own: list[int], shared: list[str]) -> Decision:
    if not given.model.experts:
        return off("the model has no expert tensors (a dense model)", given, ())
    if own and given.ram_budget is not None:
        return two_tiers(given, own)
    if own:
        found = on_devices(given, own)
        return found if found.host_layers is None or fits_ram(given) else _behind(given, own)
    if shared and given.ram_budget is None and fits_ram(given):
        return off(f"{shared[0]} shares the host's memory: there is no transfer to save", given, (host_terms(given),))
    return over_disk(given)


def fits_ram(given: Given) -> bool:
    """Whether host memory holds everything that is not on a device, all experts with it."""
    return _on_host(given) <= budget.room(given.available)


def _behind(given: Given, own: list[int]) -> Decision:
    """Two tiers, since the experts do not fit host memory."""
    found = two_tiers(replace(given, ram_budget="auto", prefill="bypass"), own)
    what = f"{format_bytes(_on_host(given))} do not fit the {format_bytes(given.available)} of host memory: experts stay on disk"
    return replace(found, notes=(what, *found.notes))


def _on_host(given: Given) -> int:
    host = given.reservation.of(HOST)
    return host.weights + host.kv + host.compute
