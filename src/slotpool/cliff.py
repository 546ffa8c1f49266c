"""The memory cliff: a device is filled step by step while a small model decodes on it, until it gets slow, fails, or is full.

Drivers that spill into host memory say nothing: allocations succeed and everything is several times slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from slotpool import engine, loading
from slotpool.errors import SlotpoolError, unknown
from slotpool.native.probe import Filled, Probe

BREAKS_BELOW = 0.7
"""Share of the first speed below which the speed has broken."""
_N_TOKENS = 16
_N_STEPS = 32
_FINEST = 64 << 20


@dataclass(frozen=True)
class Step:
    """So many bytes taken by us, so many free as the device says, and the speed of decoding then (0: it failed)."""

    taken: int
    free: int
    tokens_per_second: float


@dataclass(frozen=True)
class Cliff:
    """`free` is what the device says is free at the last good step: leave at least that. `reason`: slow, failed or full."""

    device: str
    steps: tuple[Step, ...]
    reason: str
    free: int


def find_cliff(device: str, model: Path, probe: Probe, on_step: Callable[[Step], None] = lambda _: None) -> Cliff:
    """Fills `device` while `model` decodes on it. SlotpoolError for a device that there is not, or that takes no model."""
    gpus = engine.offload_devices()
    if device not in gpus:
        raise unknown("device", device, gpus, where="--cliff")
    llm = loading.load(model, slots=0, n_gpu_layers=-1, split_mode=0, main_gpu=gpus.index(device), n_ctx=256)
    with ExitStack() as held:
        held.callback(llm.close)
        filled: list[Filled] = []
        held.callback(filled.clear)  # memory goes with the last name for it
        steps = _fill(device, probe, filled, lambda: _speed(llm), on_step)
    return judged(device, steps)


def judged(device: str, steps: Sequence[Step]) -> Cliff:
    """What the steps say."""
    first = steps[0].tokens_per_second
    for before, step in pairwise(steps):
        if step.tokens_per_second < BREAKS_BELOW * first:
            return Cliff(device, tuple(steps), "slow" if step.tokens_per_second else "failed", before.free)
    return Cliff(device, tuple(steps), "full", steps[-1].free)


def _fill(device: str, probe: Probe, filled: list[Filled], speed: Callable[[], float], on_step: Callable[[Step], None]) -> list[Step]:
    """Steps of a 32nd of what is free, finer at the end; the last is the one that broke, or the last that fitted."""
    speed()  # the first pass is slower
    steps = [Step(0, _free(device), speed())]
    on_step(steps[0])
    size, taken = max(_FINEST, steps[0].free // _N_STEPS), 0
    while size >= min(_FINEST, max(1, steps[0].free // _N_STEPS)):
        more = probe.fill(device, size)
        if more is None:
            size //= 2
            continue
        filled.append(more)
        taken += size
        steps.append(Step(taken, _free(device), speed()))
        on_step(steps[-1])
        if steps[-1].tokens_per_second < BREAKS_BELOW * steps[0].tokens_per_second:
            break
    return steps


def _free(device: str) -> int:
    return next(one.free_bytes for one in engine.devices() if one.name == device)


def _speed(llm: loading.PooledLlama) -> float:
    """Tokens per second, the median of single steps; 0 where the engine fails."""
    try:
        llm.reset()
        llm.eval([1])
        times = []
        for token in range(2, 2 + _N_TOKENS):
            began = time.perf_counter()
            llm.eval([token])
            times.append(time.perf_counter() - began)
    except (RuntimeError, SlotpoolError):
        return 0.0
    return 1.0 / median(times)
