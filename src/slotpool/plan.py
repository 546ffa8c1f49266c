"""A plan: which expert tensor gets how many slots on which device, and why the others get none.

Decides nothing about bytes or speed: it takes a number of slots and writes down what follows. `to_text` is the plan file
that the core reads (its format is stated in `core/plan/plan.h`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from slotpool.errors import SlotpoolError, unknown
from slotpool.model import ExpertTensor, Model

POLICIES = ("default", "decay", "lru")
"""Names of eviction policies. `default` is the one that measured best so far (docs/log.md): decayed frequency."""
DECAY = 0.97
"""Decay of the frequency policy per event, the constant of the reference figures in docs/design/pool.md."""
PASSES = ("exps", "chexps")
"""Expert tensors of one layer with the same pass share a routing; chunk experts (grovemoe) are a pass of their own."""

_AUTO_OFF = "off: no device to pool on, and RAM suffices (slots would only double the memory)"

Slots: TypeAlias = int | str
"""A number of slots per expert tensor, `all`, or `auto`; 0 is off."""


@dataclass(frozen=True)
class Group:
    """The expert tensors of one layer that share a routing, and so one slot table of `slots` slots."""

    layer: int
    pass_: str
    device: str
    slots: int
    n_expert: int
    tensors: tuple[ExpertTensor, ...]

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
class Plan:
    """What `to_text` writes. `warnings` are for the user, not for the core."""

    groups: tuple[Group, ...] = ()
    off: tuple[Off, ...] = ()
    policy: str = "decay"
    decay: float = DECAY
    poison: bool = False
    warnings: tuple[str, ...] = ()

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


def make(model: Model, slots: Slots, *, policy: str = "default", poison: bool = False, device: str = "CPU") -> Plan:
    """The plan that gives every expert tensor of `model` the same number of slots, at most as many as it has experts.

    Raises SlotpoolError for slots that one token cannot use, an unknown word or policy. Fewer than twice what a token uses is a
    warning. `auto` is off for now: there is no device, and slots would only double the memory.
    """
    if policy not in POLICIES:
        raise unknown("policy", str(policy), POLICIES, where="--policy")
    wanted = _wanted(slots)
    name = "decay" if policy == "default" else policy
    if not model.experts:
        return Plan(policy=name)
    if wanted == 0:
        reason = _AUTO_OFF if slots == "auto" else "off: 0 slots asked for"
        return Plan(off=tuple(Off(tensor.name, reason) for tensor in model.experts), policy=name)
    _check_slots(model, wanted)
    groups = tuple(_group(layer, pass_, tensors, wanted, device) for (layer, pass_), tensors in _by_routing(model).items())
    return Plan(groups=groups, policy=name, poison=poison, warnings=_warnings(model, wanted))


def to_text(plan: Plan) -> str:
    """The plan file, one statement a line. Raises SlotpoolError for a tensor name that the format cannot hold."""
    lines = ["slotpool-plan 1", f"policy {plan.policy}" + (f" {plan.decay!r}" if plan.policy == "decay" else "")]
    lines.append(f"poison {'on' if plan.poison else 'off'}")
    for group in plan.groups:
        lines.append(f"group layer={group.layer} pass={group.pass_} device={group.device} slots={group.slots} n_expert={group.n_expert}")
        lines.extend(f"tensor {_word(tensor.name)} role={tensor.role} slab={tensor.slab_bytes}" for tensor in group.tensors)
    lines.extend(f"off {_word(off.tensor)} {off.reason}" for off in plan.off)
    return "\n".join(lines) + "\n"


def _wanted(slots: Slots) -> int:
    if isinstance(slots, bool) or not isinstance(slots, int | str):
        raise _bad_slots(repr(slots))
    if slots in ("auto", 0):
        return 0
    if slots == "all":
        return 1 << 30
    if isinstance(slots, str):
        raise _bad_slots(f'"{slots}"')
    if slots < 0:
        raise _bad_slots(str(slots))
    return slots


def _bad_slots(found: str) -> SlotpoolError:
    return SlotpoolError(f"expected slots as a number, all, auto or 0, found {found}", where="--slots")


def _check_slots(model: Model, wanted: int) -> None:
    if wanted < model.n_expert_used:
        raise SlotpoolError(
            f"expected at least {model.n_expert_used} slots, which one token uses, found {wanted}",
            where="--slots",
            do=f"Try --slots {min(2 * model.n_expert_used, model.n_expert)}, or 0 for none.",
        )


def _warnings(model: Model, wanted: int) -> tuple[str, ...]:
    if wanted >= min(2 * model.n_expert_used, model.n_expert):
        return ()
    return (f"{wanted} slots are fewer than twice the {model.n_expert_used} experts a token uses: this is the slow end",)


def _by_routing(model: Model) -> dict[tuple[int, str], list[ExpertTensor]]:
    groups: dict[tuple[int, str], list[ExpertTensor]] = {}
    for layer, tensors in model.layers.items():
        for tensor in sorted(tensors, key=lambda one: one.is_chunk):  # in the order of the graph, whatever the file's is
            groups.setdefault((layer, PASSES[tensor.is_chunk]), []).append(tensor)
    return groups


def _group(layer: int, pass_: str, tensors: Sequence[ExpertTensor], wanted: int, device: str) -> Group:
    n_expert = tensors[0].n_expert
    return Group(layer, pass_, device, min(wanted, n_expert), n_expert, tuple(tensors))


def _word(name: str) -> str:
    if not name or any(char.isspace() for char in name):
        raise SlotpoolError(f"expected a tensor name without spaces, found {name!r}")
    return name
