"""The facts of a plan: which expert tensor gets how many slots on which device, where experts lie, why the others get none.

Decides nothing, writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

from slotpool import policies
from slotpool.model import ExpertTensor
from slotpool.profile import Pin

POLICIES = ("default", *policies.POLICIES)
"""Names of eviction policies. `default` is the one that measured best so far (docs/log.md)."""
DECAY = 0.97
"""Decay of the frequency policy per event, the constant of the reference figures in docs/design/pool.md."""
PASSES = ("exps", "chexps")
"""Expert tensors of one layer with the same pass share a routing; chunk experts (grovemoe) are a pass of their own."""
MISSES = ("auto", "copy", "cpu", "frozen")
"""How misses are served: copied into a slot before use, computed by the CPU where the weights lie and copied for later, whichever is
cheaper by what was measured, or computed by the CPU with a pool that never changes once its slots are full."""

PREFILL = ("bypass", "stream", "auto")
"""Ubatches that do not fit the slots of a device, with experts in host memory: left to llama.cpp, passed through the device beside the
pool, or passed where that is the cheaper of the two."""

WHOLE, EXPLICIT, DYNAMIC = "whole", "explicit", "dynamic"
"""Whose slots come first when not all fit: tensors that are wholly in slots, then numbers that a user gave, then the others."""

Slots: TypeAlias = int | str
"""A number of slots per expert tensor, `all`, or `auto`; 0 is off."""
RamBudget: TypeAlias = int | str | None
"""Bytes of RAM for slots of experts that stay on disk, or `auto`: what is available. None: nobody asked for it."""
OnePerDevice: TypeAlias = int | Sequence[int] | None
"""Bytes for every device, or one number for each. None: nobody said."""


@dataclass(frozen=True)
class Group:
    """Expert tensors of one layer that share a routing and one slot table of `slots` slots; a layer may have several with one `pass_`.

    `biases` are names of tensors that go with them to a device: one row an expert, added by expert (gpt-oss). `warm` is what the slots
    begin with, the hottest first: an expert, and how many of a million events are expected to ask for it.
    """

    layer: int
    pass_: str
    device: str
    slots: int
    n_expert: int
    tensors: tuple[ExpertTensor, ...]
    biases: tuple[str, ...] = ()
    warm: tuple[tuple[int, int], ...] = ()
    claim: str = DYNAMIC

    @property
    def slab_bytes(self) -> int:
        """Bytes of one expert over all tensors of the group: what a miss copies."""
        return sum(tensor.slab_bytes for tensor in self.tensors)


@dataclass(frozen=True)
class Off:
    """An expert tensor that is not pooled, and the reason as a user reads it."""

    tensor: str
    reason: str


@dataclass(frozen=True)
class PlannedFile:
    """The file of a shard as it was when it was planned for: the core reads no other. `mtime_ns` counts from the epoch."""

    path: str
    size: int
    mtime_ns: int
    shard: int = 0


@dataclass(frozen=True)
class PlannedMemory:
    """Bytes of RAM for slots. `budget` None is what is available then, `rail` None the default rail of it.

    `reserve` is what will be allocated by then and not yet touched, so that no system counts it.
    """

    budget: int | None = None
    rail: int | None = None
    reserve: int = 0


@dataclass(frozen=True)
class PlannedDevice:
    """A device other than the CPU that may hold slots, by ggml's name: at most `slots` of an expert tensor, 0 for none.

    `budget` and `rail` are bytes; None: what is free when slots are allocated, and the core's default rail (1 GiB).
    `fewest_slots` of an expert tensor should find room: what was asked for, or of `auto` the fewest that are useful. Not the core's.
    """

    name: str
    slots: int
    budget: int | None = None
    rail: int | None = None
    fewest_slots: int = 0


@dataclass(frozen=True)
class Plan:
    """What `to_text` writes. `warnings` are for the user, not for the core.

    `has_heat_report`: the report says how often each expert was asked for.
    `contexts` is `all`, or `first`: only the first context of the model that computes has pools, and the next one when that is gone.
    With `is_bypassed` generated tokens take the stock path beside slots that ubatches of two tokens allocate: what a pool costs unused.
    With `is_repacked` slots of the CPU hold experts of `files` in the layout that llama.cpp repacks weights to, where it does.
    With `files` experts stay on disk, and the slots of a group are the most it may have: the core allocates what fits into `memory`.
    """

    groups: tuple[Group, ...] = ()
    off: tuple[Off, ...] = ()
    policy: str = policies.DEFAULT
    decay: float = DECAY
    poison: bool = False
    is_bypassed: bool = False
    is_repacked: bool = False
    warnings: tuple[str, ...] = ()
    files: tuple[PlannedFile, ...] = ()
    memory: PlannedMemory | None = None
    devices: tuple[PlannedDevice, ...] = ()
    misses: str = "copy"
    is_settled: bool = False
    prefill: str = "bypass"
    contexts: str = "all"
    pin: Pin | None = None
    has_heat_report: bool = False

    @property
    def reads_files(self) -> bool:
        """Whether experts stay on disk and are read into slots."""
        return bool(self.files)

    @property
    def staging_bytes(self) -> int:
        """Bytes of each device, beside its slots, that prompts pass through: all experts of one layer; 0 where none do."""
        return staging_bytes(self.groups) if self.prefill != "bypass" else 0

    @property
    def slot_bytes(self) -> int:
        """Bytes of all slots of the plan."""
        return sum(group.slots * group.slab_bytes for group in self.groups)

    @property
    def reason(self) -> str:
        """Why nothing is pooled; empty when something is."""
        if self.groups:
            return ""
        return self.off[0].reason if self.off else "the model has no expert tensors (a dense model)"


def staging_bytes(groups: Sequence[Group]) -> int:
    """For each place of a layer's tensors the largest tensor of any layer, whole (`core/transfer/staging.h`)."""
    layers = ([tensor.slab_bytes * group.n_expert for tensor in group.tensors] for group in groups)
    return sum(max(place) for place in zip_longest(*layers, fillvalue=0))
