"""Gathers what a decision is made from: llama.cpp's own reservation, the devices, memory, speeds. The one way for `plan` and for `auto`.

Decides nothing. Starts processes that ask llama.cpp, and measures speeds that nobody knows yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slotpool import engine, native
from slotpool.model import Model
from slotpool.plan import OnePerDevice, PerLayer, PerRole, RamBudget, Slots
from slotpool.plan.devices import one_each
from slotpool.planning.given import Given
from slotpool.probe import Effort, Subjects, known_speeds, of_model
from slotpool.reserve import Wanted, reserve
from slotpool.speeds import Speeds
from slotpool.trace import Trace

Measure = Callable[[Subjects], tuple[Speeds, list[str]]]
"""Speeds, and what the user must know of them."""


@dataclass(frozen=True)
class Asked:
    """What a user asked for, in the words of `slotpool.load`."""

    slots: Slots | Sequence[Slots] = "auto"
    slots_per_layer: PerLayer = None
    slots_per_role: PerRole = None
    policy: str = "default"
    miss: str = "auto"
    exact: bool = False
    device_budget: OnePerDevice = None
    ram_budget: RamBudget = None
    rail: OnePerDevice = None
    rpc: Sequence[str] = ()
    prefill: str = "bypass"


def gather(
    model: Model,
    asked: Asked,
    devices: Sequence[str],
    wanted: Wanted,
    *,
    threads: int | None = None,
    trace: Trace | None = None,
    reserved: int = 0,
    repack: bool = True,
    measure: Measure | None = None,
) -> tuple[Given, list[str]]:
    """What is known about `model` with slots on `devices` (ggml's names; none: in RAM over a disk), and what the user must know.

    `wanted` is the context, `threads` those that compute experts, `reserved` bytes for what else will be loaded, `repack`
    whether weights may be repacked. Raises SlotpoolError for
    what llama.cpp would not run.
    """
    wanted = replace(wanted, n_gpu_layers=wanted.n_gpu_layers if devices else 0)
    places = list(devices) or ["CPU"]
    subjects = of_model(model, threads, devices)
    backends = _backends()
    reservation = reserve(model, wanted, rpc=asked.rpc, backends=backends)
    whole = reserve(model, replace(wanted, experts_on_host=False), rpc=asked.rpc, backends=backends) if devices else None
    speeds, notes = (measure or _measured)(subjects) if model.experts else (Speeds(""), [])
    return Given(
        model,
        tuple(device for device in engine.devices() if device.name in devices),
        reservation,
        whole,
        speeds,
        available=native.available_memory().smallest or 0,
        slots=one_each(asked.slots, places, "--slots"),
        slots_per_layer=asked.slots_per_layer,
        slots_per_role=asked.slots_per_role,
        device_budget=one_each(asked.device_budget, places, "--device-budget"),
        rail=one_each(asked.rail, places, "--rail"),
        ram_budget=asked.ram_budget,
        reserved=reserved,
        trace=trace,
        policy=asked.policy,
        misses=asked.miss,
        exact=asked.exact,
        prefill=asked.prefill,
        disk=subjects.file.disk if subjects.file else "",
        repack=repack,
    ), notes


def _measured(subjects: Subjects) -> tuple[Speeds, list[str]]:
    return known_speeds(subjects, Effort(3, 0.03))


def _backends() -> list[str]:
    """The backend from outside that programs of this user load, other than our own core: its devices are there for llama.cpp as well."""
    path = os.environ.get("GGML_BACKEND_PATH", "")
    return [path] if path and Path(path).name != native.CORE_PATH.name else []
