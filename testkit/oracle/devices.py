"""Pooled runs in a process with chaos devices, and all that can be seen of one from outside.

The process lives for many runs, since devices cannot be unloaded; one that crashed or hangs is replaced by a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from slotpool import model as files
from slotpool import plan as plans
from slotpool.native import GroupCounts
from slotpool.plan import Plan
from testkit.chaos import Chaos, Counters
from testkit.chaos.process import here, process

from .engine import Bits, EngineError
from .pooled import Pooled, pooled
from .script import Setup, Steps
from .splits import Split, last_graph

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
ON_DEVICE = Setup(n_gpu_layers=99, tensor_split=(1.0, 0.0))
"""Everything on the first device, however many there are."""
_MOST_SECONDS = 120


@dataclass(frozen=True)
class DeviceRun:
    """What a run was and did. `off` has a reason for each group that is not pooled after all; counters are by device, of the run alone."""

    bits: list[Bits]
    counts: list[GroupCounts]
    off: list[str]
    splits: list[Split]
    counters: list[Counters]
    hazard: str
    n_reused: int
    n_reserves: int


@dataclass
class DeviceProcess:
    """A process with chaos devices, to be used in a with block; `knobs` are those of testkit.chaos."""

    knobs: Mapping[str, float] = field(default_factory=dict)
    _process: ProcessPoolExecutor | None = None

    def call(self, function: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        """A function of an importable module, in the process. Whatever is raised there, TimeoutError, or BrokenProcessPool for a crash."""
        if self._process is None:
            self._process = process(self.knobs)
        try:
            return self._process.submit(function, *arguments, **named).result(_MOST_SECONDS)
        except (TimeoutError, RuntimeError):  # BrokenProcessPool is a RuntimeError
            self.end()
            raise

    def run(self, path: Path, plan: Plan, setup: Setup, steps: Steps) -> DeviceRun:
        return self.call(run_on_devices, path, plan, setup, steps)

    def end(self) -> None:
        """Ends the process, now. The next call has a fresh one."""
        if self._process is None:
            return
        for worker in list((self._process._processes or {}).values()):
            worker.kill()
        self._process.shutdown(cancel_futures=True)
        self._process = None

    def __enter__(self) -> DeviceProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()


def chaos() -> Chaos:
    """The devices of this process. EngineError where there are none."""
    devices = here()
    if devices is None:
        raise EngineError("expected a process with chaos devices, got one without")
    return devices


def run_on_devices(path: Path, plan: Plan, setup: Setup, steps: Steps) -> DeviceRun:
    """In a process with devices: the steps in a fresh model. Counters begin when its context is there."""
    with pooled(path, plan, setup) as model:
        chaos().reset()
        return seen(model, model.run(steps))


def seen(model: Pooled, bits: list[Bits]) -> DeviceRun:
    """In a process with devices: all that can be seen of a model's run. Closes its contexts, so that what was on its way has arrived."""
    n_reused, log = model.first.n_reused, model.first.log
    counts = model.counts()
    model.close_contexts()
    return DeviceRun(
        bits=bits,
        counts=counts,
        off=[model.session.off_reason(group) for group in range(len(model.plan.groups))],
        splits=last_graph(log),
        counters=[chaos().counters(device) for device in range(int(chaos().get("devices")))],
        hazard=chaos().first_hazard(),
        n_reused=n_reused,
        n_reserves=model.first.n_reserves,
    )


def plan_on(
    path: Path,
    slots: int | str | Sequence[int | str],
    devices: Sequence[str] = ("CHAOS0",),
    *,
    misses: str = "copy",
    is_settled: bool = True,
    policy: str = "decay",
    rail: int | Sequence[int] = 0,
    budget: int | Sequence[int] | None = None,
    prefill: str = "bypass",
) -> Plan:
    """A poisoned plan with slots on devices; settled, so that its numbers follow from the routing. Without devices: on the CPU."""
    model = files.read(path)
    if not devices:
        made = plans.make(model, slots, policy=policy, poison=True, misses=misses)
    else:
        made = plans.make(
            model, slots, policy=policy, poison=True, devices=devices, misses=misses, rail=rail, device_budget=budget, prefill=prefill
        )
    return replace(made, misses=misses, is_settled=is_settled)  # `make` takes copy for auto on the CPU


def with_homes(plan: Plan, homes: Sequence[str]) -> Plan:
    """The plan with a device for every group, and as many slots as that device may hold: what `auto` comes to."""
    slots = {device.name: device.slots for device in plan.devices}
    groups = zip(plan.groups, homes, strict=True)
    return replace(
        plan, groups=tuple(replace(group, device=home, slots=min(group.n_expert, slots.get(home, group.slots))) for group, home in groups)
    )
