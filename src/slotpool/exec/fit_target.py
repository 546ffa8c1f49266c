"""What a program that fits itself into its devices must leave free there, so that the slots find room: LLAMA_ARG_FIT_TARGET.

llama.cpp's programs measure a model before they load it and fill each device to a margin (`--fit`, on unless told otherwise). Slots are
allocated at the first decode, when everything else is there, so their bytes go on top of that margin. Measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slotpool.exec.program_options import Option, value
from slotpool.plan import DYNAMIC, Group, Plan, PlannedDevice

VARIABLE = "LLAMA_ARG_FIT_TARGET"
_TARGET = Option(("-fitt", "--fit-target"), VARIABLE)
_FIT = Option(("-fit", "--fit"), "LLAMA_ARG_FIT")
_DEVICES = Option(("-dev", "--device"), "LLAMA_ARG_DEVICE")
_OFF = ("off", "disabled", "false", "0")
_MIB = 2**20
MARGIN = 1024 * _MIB
"""What llama.cpp's programs leave free on each device when nobody says how much."""


def fit_target(made: Plan, arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The variable's value, MiB by device; None where there is nothing to reserve, or the user has said what stays free."""
    if not made.devices or value(_FIT, arguments, environment) in _OFF or has_own_target(arguments, environment):
        return None
    targets = {device.name: _mib(max(MARGIN, device.rail or 0) + reserved(made, device)) for device in made.devices}
    order = (value(_DEVICES, arguments, environment) or "").split(",")
    if len(order) > 1:  # one number would stand for all of them
        return ",".join(str(targets.get(name, MARGIN // _MIB)) for name in order)
    return str(max(targets.values()))  # whose device is which only the program knows


def has_own_target(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether the user has said how much stays free."""
    return value(_TARGET, arguments, environment) is not None


def reserved(made: Plan, device: PlannedDevice) -> int:
    """Bytes for slots on `device`: its budget, or the fewest slots that were asked for, of all layers that may live there."""
    slots = device.slots if device.budget is not None else device.fewest_slots
    wanted = sorted((_slots(group, slots) * group.slab_bytes for group in made.groups), reverse=True)
    n_devices = sum(one.slots > 0 for one in made.devices)
    share = sum(wanted[: -(-len(wanted) // n_devices)]) if slots else 0  # layers are dealt evenly, as far as anybody can know
    share += made.staging_bytes if share else 0
    return share if device.budget is None else min(share, device.budget)


def _slots(group: Group, slots: int) -> int:
    return min(slots, group.n_expert) if group.claim == DYNAMIC else group.slots


def _mib(n_bytes: int) -> int:
    return -(-n_bytes // _MIB)
