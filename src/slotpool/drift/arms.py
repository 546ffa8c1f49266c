"""The arms of a measurement: which there are, how each is started so that they can be compared, and which has to run alone.

Starts and ends processes; decodes only where an arm runs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from slotpool import engine
from slotpool.drift.facts import CPU, DEVICE, POOL, ArmSpec, Settings
from slotpool.drift.process import ArmProcess
from slotpool.drift.schedule import Schedule
from slotpool.drift.spool import SpooledArm
from slotpool.errors import SlotpoolError
from slotpool.model import Model


class Arms:
    """Plain on the CPU first, the others once it is known what they compute."""

    def __init__(self, stack: ExitStack, facts: Model, reference: Model, settings: Settings) -> None:
        self._stack, self._facts, self._reference, self._settings = stack, facts, reference, settings
        self.why_no_device = ""
        self.devices: tuple[str, ...] = ()
        self.device: ArmProcess | SpooledArm | None = None
        self.cpu = stack.enter_context(ArmProcess(self._spec(CPU)))

    def start(self, schedule: Schedule, on_tokens: Callable[[int], None]) -> None:
        """Starts the pool, and plain llama.cpp on the devices: beside it, or alone before it, where `on_tokens` hears what it has done.

        Raises SlotpoolError where the pool does not start. Where plain does not, `why_no_device` says why.
        """
        # a server of RPC serves one process at a time
        if self._settings.pool.get("rpc"):
            self._run_device_alone(schedule, on_tokens)
        self._start_pool()
        if not self.devices or self.device or self.why_no_device:
            return
        try:
            self.device = self._stack.enter_context(ArmProcess(self._spec(DEVICE)))
        except SlotpoolError:
            # the memory that the pool has taken may be what it lacks
            self.pool.end()
            self._run_device_alone(schedule, on_tokens)
            self._start_pool()

    @property
    def all(self) -> dict[str, ArmProcess | SpooledArm]:
        """Arms by name: plain ones first."""
        return {CPU: self.cpu, **({DEVICE: self.device} if self.device else {}), POOL: self.pool}

    def _start_pool(self) -> None:
        self.pool = self._stack.enter_context(ArmProcess(self._spec(POOL)))
        if self.pool.hello.n_vocab != self.cpu.hello.n_vocab:
            raise SlotpoolError(
                f"expected a model of {self.pool.hello.n_vocab} tokens to compare with, found one of {self.cpu.hello.n_vocab}",
                where="--against",
            )
        self.devices = tuple(name for name in self.pool.hello.pooled_on if name not in ("", "CPU"))

    def _run_device_alone(self, schedule: Schedule, on_tokens: Callable[[int], None]) -> None:
        try:
            with ArmProcess(self._spec(DEVICE)) as arm:
                self.device = self._stack.enter_context(SpooledArm(arm, schedule, on_tokens))
        except SlotpoolError as error:
            self.why_no_device = error.message

    def _spec(self, name: str) -> ArmSpec:
        settings, is_plain_cpu = self._settings, name == CPU
        options = {key: value for key, value in settings.pool.items() if key != "rpc"} | {"require_pool": True}
        facts = self._facts if name == POOL else self._reference
        return ArmSpec(
            name=name,
            # the engine takes the first shard only, whichever was named
            model=str(min(facts.files, key=lambda file: file.shard).path),
            n_ctx=settings.n_ctx,
            n_threads=settings.n_threads or engine.n_cores(),
            n_gpu_layers=0 if is_plain_cpu or not self.is_on_devices else -1,
            tensor_split=() if is_plain_cpu else self._split(),
            pool=options if name == POOL else None,
            rpc=() if is_plain_cpu else tuple(settings.pool.get("rpc") or ()),
            backends=settings.backends,
        )

    @property
    def is_on_devices(self) -> bool:
        """Whether the pool's layers are on devices: `load` would say so itself, but its reference has to do the same."""
        device = self._settings.pool.get("device")
        names = [device] if isinstance(device, str) else list(device or ())
        if names and names != ["auto"]:
            return names != ["CPU"]
        if self._settings.pool.get("rpc"):
            return True
        return self._settings.pool.get("ram_budget") is None and bool(self._offload())

    def _offload(self) -> list[int]:
        """Free bytes of the devices that the engine gives layers to."""
        return [free for _, kind, free in self.cpu.hello.devices if kind in ("GPU", "IGPU")]

    def _split(self) -> tuple[float, ...]:
        """Layers by free memory, as the engine splits them, but the same for both arms: the second would find less free."""
        free = self._offload()
        total = float(sum(free))
        return tuple(one / total for one in free) if len(free) > 1 and total and not self._settings.pool.get("rpc") else ()
