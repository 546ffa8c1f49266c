"""What a decision is made from, and what follows from it alone: rates, hit curves, seconds outside the experts. Decides nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from slotpool import speeds
from slotpool.engine import Device
from slotpool.errors import SlotpoolError
from slotpool.model import Model
from slotpool.model.tensor_types import TENSOR_TYPES
from slotpool.plan import Group, PerLayer, PerRole, RamBudget, Slots
from slotpool.predict import AUTO, CPU, Curve, Event, Filled, Rates, Token, assumed, over_link, recorded
from slotpool.probe.subjects import plain_weights
from slotpool.reserve import HOST, Reservation
from slotpool.speeds import Speeds
from slotpool.trace import Trace

_TURNS = 3
"""Copies between a device and the CPU for a layer whose experts the CPU computes: its input and ids out, its result back."""
_FLOAT = 4
DISK_DEPTH = 4
"""Reads in flight, as the store has them."""


@dataclass(frozen=True)
class Given:
    """`reservation` is llama.cpp's own with the experts in host memory, `whole` with everything on the devices (None: nobody asked).

    `devices` are those that may hold slots, integrated ones included, in the engine's order; `slots`, `device_budget` and `rail` one for
    each, or one value without devices. `available` is RAM that may be taken, control groups included. `reserved` is bytes for what else
    will be loaded, on the first device, or in RAM without one. `disk` is the subject of the disk's speeds. `repack`: whether weights may be
    repacked for the CPU's faster kernels.
    """

    model: Model
    devices: tuple[Device, ...]
    reservation: Reservation
    whole: Reservation | None
    speeds: Speeds
    available: int
    slots: Sequence[Slots]
    device_budget: Sequence[int | None] = (None,)
    rail: Sequence[int | None] = (None,)
    ram_budget: RamBudget = None
    reserved: int = 0
    trace: Trace | None = None
    policy: str = "default"
    misses: str = "auto"
    exact: bool = False
    prefill: str = "bypass"
    disk: str = ""
    slots_per_layer: PerLayer = None
    slots_per_role: PerRole = None
    repack: bool = True

    def curve(self, group: Group, policy: str = "", *, way: str = CPU, device: str = "") -> Curve:
        """Hit rate against slots of a group, as `filled` has it."""
        found = self.filled(group, policy, way=way, device=device)
        return lambda slots: found(slots).hit_rate

    def filled(self, group: Group, policy: str = "", *, way: str = CPU, device: str = "") -> Callable[[int], Filled]:
        """What slots of a group find, and what events wait for what fills them: of the trace, or assumed. `policy` empty is the plan's;
        misses are served in the `way`, on `device`. Where all of them are copied or read every one has a slot at once; elsewhere slots are
        filled as the link allows."""
        if self.trace is None:
            curve = assumed(group.n_expert)
            return lambda slots: Filled(curve(slots))
        try:
            found = self.trace.group(group.layer, group.pass_)
        except KeyError as error:
            raise SlotpoolError(
                f"expected the trace to have layer {group.layer} ({group.pass_}), found none", where="--trace", do="Record this model."
            ) from error
        if (found.n_expert, found.n_expert_used) != (group.n_expert, self.model.n_expert_used) and group.pass_ == "exps":
            raise SlotpoolError(
                f"expected a trace with {self.model.n_expert_used} of {group.n_expert} experts in layer {group.layer}, "
                f"found {found.n_expert_used} of {found.n_expert}",
                where="--trace",
                do="Record this model.",
            )
        replayed = recorded(self.trace, found, policy or self.policy)
        if way not in (CPU, AUTO) or not device:
            return lambda slots: Filled(replayed(slots, None).hit_rate)
        n_layers = math.ceil(len(self.model.layers) / max(1, len(self.devices)))
        token = Token(self.other_seconds(), self.ends_seconds(), n_layers)
        return over_link(replayed, self.event(group), self.rates(device), way, token)

    def event(self, group: Group) -> Event:
        """A token in the group's layer."""
        return Event(min(self.model.n_expert_used, group.n_expert), group.slab_bytes, _FLOAT * self._embedding[0])

    def rates(self, device: str) -> Rates:
        """Of slots on `device`, or in RAM over the disk (`HOST`). SlotpoolError for what was not measured.

        Where llama.cpp repacks weights, slots over a disk are repacked, and what is mapped is not; beside a device the experts that plain
        llama.cpp leaves to the CPU are, and those of the pool are not.
        """
        cpu, repacked = self._experts(HOST), self._experts(HOST, self._layout)
        turn = _TURNS * (self.speeds.value(device, speeds.LATENCY) or 0.0)
        if device == HOST:
            direct = self._value(self.disk, speeds.direct(DISK_DEPTH))
            return Rates(repacked, disk=direct, faults=self._value(self.disk, speeds.FAULTS), plain_cpu=cpu)
        link = self._value(device, speeds.UPLOAD)
        return Rates(cpu, self._experts(device), link, self._beside(device, cpu), turn, plain_cpu=repacked)

    def other_seconds(self, *, is_mapped: bool = False) -> float:
        """Seconds of one token outside its experts: weights that are read once, what the nodes of the graph cost, and with a device the
        token's way there and its logits' way back. `is_mapped`: of plain llama.cpp, whose weights are mapped as the file has them."""
        weights = plain_weights(self.model)
        name = speeds.plain(weights.type_name, weights.ne0, weights.ne1) if weights else ""
        names = (name + self._layout, name) if not is_mapped else (name,)
        gpus = [one for one in self.reservation.devices if one.name != HOST and one.weights]
        main = gpus[0].name if gpus else HOST
        nodes = self.reservation.n_nodes * (self.speeds.value(main, speeds.NODE) or 0.0)
        places = [(one.name, one.weights) for one in gpus] or [(HOST, self.model.other_bytes)]
        read = sum(n_bytes / (self.speeds.value(place, *names) or self._experts(place)) for place, n_bytes in places)
        return nodes + self.ends_seconds() + read

    def ends_seconds(self) -> float:
        """Of these, what a token and its logits hold the link for; 0 without a device."""
        gpus = [one.name for one in self.reservation.devices if one.name != HOST and one.weights]
        return _FLOAT * sum(self._embedding) / (self.speeds.value(gpus[0], speeds.UPLOAD) or math.inf) if gpus else 0.0

    @cached_property
    def _embedding(self) -> tuple[int, int]:
        """Width and size of the vocabulary: a token's row goes to the first device, its logits come back. 0 where nothing says."""
        found = (tensor.ne for file in self.model.files for tensor in file.tensors if tensor.name == "token_embd.weight")
        ne = next(found, (0, 0))
        return ne[0], ne[1]

    @property
    def _layout(self) -> str:
        """What follows the name of the CPU's speeds where weights may be repacked. Of those that llama.cpp does not repack here there is
        no such speed."""
        return speeds.REPACKED if self.repack else ""

    def _experts(self, device: str, suffix: str = "") -> float:
        """Bytes per second over all kinds of experts, those with the `suffix` where they were measured: of their times, not of their
        speeds."""
        return self._over_kinds(device, suffix) or self._missing(device, "experts")

    def _beside(self, device: str, alone: float) -> float:
        """The CPU's speed while copies go on: measured for one kind, taken in proportion for the others."""
        pairs = [
            (beside.median, found.median)
            for beside in self.speeds.all
            if beside.subject == device and beside.what.endswith(speeds.WITH_UPLOAD)
            if (found := self.speeds.find(HOST, beside.what.removesuffix(speeds.WITH_UPLOAD)))
        ]
        return alone * min(1.0, *(both / one for both, one in pairs)) if pairs else alone

    def _over_kinds(self, device: str, suffix: str) -> float | None:
        total = seconds = 0.0
        for tensor in self.model.experts:
            used = min(self.model.n_expert_used, tensor.n_expert)
            name = speeds.experts(tensor.type, tensor.ne[0], tensor.ne[1], used)
            names = (name + suffix, name) if not tensor.is_chunk else (name,)  # slots of chunk experts are never repacked
            speed = self.speeds.value(device, *names)
            if speed and tensor.type in {kind.name for kind in TENSOR_TYPES.values()}:
                total, seconds = total + tensor.n_bytes, seconds + tensor.n_bytes / speed
        return total / seconds if seconds else None

    def _value(self, subject: str, what: str) -> float:
        return self.speeds.value(subject, what) or self._missing(subject, what)

    def _missing(self, subject: str, what: str) -> float:
        raise SlotpoolError(f"expected the speed of {what} of {subject or 'the disk'}, found that it was not measured", do="Try --fresh.")
