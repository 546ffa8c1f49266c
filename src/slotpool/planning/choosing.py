"""What is run where a user leaves it to us: the plan that follows from what was asked, or the planner's own decision where that is `auto`.

Does not load: where nothing is pooled it says how plain llama.cpp is placed best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from slotpool import native, plan
from slotpool.model import Model
from slotpool.plan import Plan
from slotpool.plan.disk import fits
from slotpool.planning.decide import decide, fits_ram
from slotpool.planning.gather import Asked, gather
from slotpool.reserve import Wanted

_ASSUMED = " (the routing is assumed to be as skewed as that of gpt-oss-20b; slotpool plan --trace measures)"
_MAPPED = "weights are not repacked for the CPU's faster kernels: memory would have to hold them then, and does not"


@dataclass(frozen=True)
class Choice:
    """`made` is what is run. `host_layers`: where nothing is pooled for want of gain, the layers whose experts plain llama.cpp leaves in
    host memory, all others being on the devices; None where nobody decided about placement. `stays_mapped`: nothing is pooled, and memory
    does not hold the model: weights that llama.cpp repacks would have to fit, those that it maps need not."""

    made: Plan
    host_layers: tuple[int, ...] | None = None
    stays_mapped: bool = False


def choose(
    model: Model,
    asked: Asked,
    devices: Sequence[str],
    wanted: Callable[[], Wanted],
    threads: int | None = None,
    *,
    repack: bool = True,
) -> Choice:
    """The plan of `slotpool.load`, and of every verb that loads. Arguments as of `gather`, `wanted` to be called where it is needed; raises
    SlotpoolError as `plan.make` does."""
    # without a pool the core stays out of the process
    available = native.available_memory().smallest if asked.slots != 0 else None
    if not is_open(model, asked, devices, available):
        return Choice(_as_asked(model, asked, devices, available))
    given, notes = gather(model, asked, devices, wanted(), threads=threads, repack=repack)
    decision = decide(given)
    told = tuple(notes) + decision.notes
    if decision.outlook.is_go:
        return Choice(replace(decision.made, warnings=decision.made.warnings + told))
    reason = decision.outlook.reason + (_ASSUMED if decision.outlook.predicted else "")
    stays_mapped = not devices and not fits_ram(given)
    told += (_MAPPED,) if stays_mapped and repack else ()
    return Choice(plan.all_off(model, decision.made.policy, f"off: {reason}", told), decision.host_layers, stays_mapped)


def is_open(model: Model, asked: Asked, devices: Sequence[str], available: int | None) -> bool:
    """Whether it is for us to say if a pool pays: `auto`, without bytes of RAM or slots of layers or roles, which say that one is wanted.
    Without a device there is nothing to weigh where everything fits."""
    slots = asked.slots if isinstance(asked.slots, list | tuple) else [asked.slots]
    if "auto" not in slots or asked.ram_budget is not None or asked.slots_per_layer or asked.slots_per_role or not model.experts:
        return False
    rail = asked.rail if isinstance(asked.rail, int) else None
    return bool(devices) or not fits(model, rail, available)


def _as_asked(model: Model, asked: Asked, devices: Sequence[str], available: int | None) -> Plan:
    return plan.make(
        model,
        asked.slots,
        policy=asked.policy,
        devices=devices,
        device_budget=asked.device_budget,
        misses=asked.miss,
        exact=asked.exact,
        prefill=asked.prefill,
        ram_budget=asked.ram_budget,
        rail=asked.rail,
        available=available,
        slots_per_layer=asked.slots_per_layer,
        slots_per_role=asked.slots_per_role,
    )
