"""A plan: which expert tensor gets how many slots on which device, where experts lie, and why the others get none.

Decides nothing about speed: it takes a number of slots, or bytes, and writes down what follows. `to_text` is the plan file
that the core reads (its format is stated in `core/plan/plan.h`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from slotpool import budget, policies
from slotpool.errors import REFUSED, SlotpoolError, printable, quoted, unknown
from slotpool.model import ExpertTensor, GgufFile, Model
from slotpool.sizes import format_bytes

POLICIES = ("default", *policies.POLICIES)
"""Names of eviction policies. `default` is the one that measured best so far (docs/log.md)."""
DECAY = 0.97
"""Decay of the frequency policy per event, the constant of the reference figures in docs/design/pool.md."""
PASSES = ("exps", "chexps")
"""Expert tensors of one layer with the same pass share a routing; chunk experts (grovemoe) are a pass of their own."""

_MAX_BYTES = 2**62
"""What the core takes for a size."""
_AUTO_OFF = "off: no device to pool on, and RAM suffices (slots would only double the memory)"

Slots: TypeAlias = int | str
"""A number of slots per expert tensor, `all`, or `auto`; 0 is off."""
RamBudget: TypeAlias = int | str | None
"""Bytes of RAM for slots of experts that stay on disk, or `auto`: what is available. None: nobody asked for it."""


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
class Plan:
    """What `to_text` writes. `warnings` are for the user, not for the core.

    With `files` experts stay on disk, and the slots of a group are the most it may have: the core allocates what fits into `memory`.
    """

    groups: tuple[Group, ...] = ()
    off: tuple[Off, ...] = ()
    policy: str = policies.DEFAULT
    decay: float = DECAY
    poison: bool = False
    warnings: tuple[str, ...] = ()
    files: tuple[PlannedFile, ...] = ()
    memory: PlannedMemory | None = None

    @property
    def reads_files(self) -> bool:
        """Whether experts stay on disk and are read into slots."""
        return bool(self.files)

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


def make(
    model: Model,
    slots: Slots,
    *,
    policy: str = "default",
    poison: bool = False,
    device: str = "CPU",
    ram_budget: RamBudget = None,
    rail: int | None = None,
    available: int | None = None,
) -> Plan:
    """The plan that gives every expert tensor of `model` the same number of slots, at most as many as it has experts.

    With `ram_budget`, experts stay on disk and `slots` is the most a tensor gets (`auto`: all its experts); the core scales all
    down to what fits. Without, `auto` is off where the weights and the rail fit into the `available` bytes (there is no device, and
    slots would only double the memory), and means `ram_budget="auto"` where they do not. `rail` None is the default rail.

    Raises SlotpoolError for slots that one token cannot use, a budget that cannot hold them, a file that is not what `model` was
    read from, an unknown word or policy. Fewer slots than twice what a token uses is a warning, and so is a budget that will be cut.
    """
    if policy not in POLICIES:
        raise unknown("policy", str(policy), POLICIES, where="--policy")
    wanted = _wanted(slots)
    _check_bytes(ram_budget, rail)
    name = policies.DEFAULT if policy == "default" else policy
    if not model.experts:
        return Plan(policy=name)
    if ram_budget is not None or (slots == "auto" and not _fits(model, rail, available)):
        return _on_disk(model, slots, name, poison, device, ram_budget, rail, available)
    warnings = _rail_unused(slots, rail)
    if wanted == 0:
        return _all_off(model, name, _AUTO_OFF if slots == "auto" else "off: 0 slots asked for", warnings)
    _check_slots(model, wanted)
    return Plan(groups=_groups(model, wanted, device), policy=name, poison=poison, warnings=warnings + _warnings(model, wanted))


def to_text(plan: Plan) -> str:
    """The plan file, one statement a line; bytes of a path that are not UTF-8 are surrogates, so encode with `surrogateescape`.

    Raises SlotpoolError for a tensor name or a path that the format cannot hold.
    """
    lines = ["slotpool-plan 1", f"policy {plan.policy}" + (f" {plan.decay!r}" if plan.policy != "lru" else "")]
    lines.append(f"poison {'on' if plan.poison else 'off'}")
    if plan.memory:
        lines.append(f"memory budget={_auto(plan.memory.budget)} rail={_auto(plan.memory.rail)} reserve={plan.memory.reserve}")
    for index, file in enumerate(plan.files):
        lines.append(f"file {index} size={file.size} mtime={file.mtime_ns} path={_path(file.path)}")
    place = {file.shard: index for index, file in enumerate(plan.files)}
    for group in plan.groups:
        lines.append(f"group layer={group.layer} pass={group.pass_} device={group.device} slots={group.slots} n_expert={group.n_expert}")
        for tensor in group.tensors:
            where = f" file={place[tensor.shard]} offset={tensor.offset}" if plan.files else ""
            lines.append(f"tensor {_word(tensor.name)} role={tensor.role} slab={tensor.slab_bytes}{where}")
    lines.extend(f"off {_word(off.tensor)} {off.reason}" for off in plan.off)
    return "\n".join(lines) + "\n"


# ---- experts on disk ----


def _on_disk(
    model: Model, slots: Slots, policy: str, poison: bool, device: str, ram_budget: RamBudget, rail: int | None, available: int | None
) -> Plan:
    if slots == 0:
        raise SlotpoolError(
            "expected slots for experts that stay on disk, found --slots 0 with a RAM budget",
            where="--ram-budget",
            do="Leave out --slots, or leave out --ram-budget to load the whole model.",
        )
    wanted = _wanted("all" if slots == "auto" else slots)
    _check_slots(model, wanted)
    groups = _groups(model, wanted, device)
    bytes_asked = ram_budget if isinstance(ram_budget, int) else None
    n_bytes = bytes_asked if available is None else budget.room(available, rail, bytes_asked)
    too_small = _too_small(model, groups, bytes_asked, n_bytes)
    if too_small and ram_budget is None:
        return _all_off(model, policy, f"off: {too_small.message}")
    if too_small:
        raise too_small
    return Plan(
        groups=groups,
        policy=policy,
        poison=poison,
        warnings=_cut(bytes_asked, rail, available) + (_warnings(model, wanted) or _few_fit(model, groups, n_bytes)),
        files=tuple(_planned_file(file) for file in model.files),
        memory=PlannedMemory(bytes_asked, rail),
    )


def _fits(model: Model, rail: int | None, available: int | None) -> bool:
    return available is None or model.expert_bytes + model.other_bytes <= budget.room(available, rail)


def _too_small(model: Model, groups: Sequence[Group], asked: int | None, n_bytes: int | None) -> SlotpoolError | None:
    """Why `n_bytes` cannot hold what one token uses, where that is known: `asked` is too little, or the machine has too little."""
    smallest = budget.needed(_slabs(groups), [min(model.n_expert_used, group.n_expert) for group in groups])
    if n_bytes is None or n_bytes >= smallest:
        return None
    what = f"{model.n_expert_used} slots per expert tensor, which one token uses, need {format_bytes(smallest)}"
    if asked is not None and asked < smallest:
        do = f"Try --ram-budget {budget.as_option(smallest)}, the smallest that works."
        return SlotpoolError(f"{what}, the RAM budget is {format_bytes(asked)}", where="--ram-budget", do=do)
    do = "Free memory, raise the limit of the control group, or lower --rail."
    return SlotpoolError(f"{what}, {format_bytes(n_bytes)} are available less the rail", where="--ram-budget", do=do, exit_code=REFUSED)


def _cut(asked: int | None, rail: int | None, available: int | None) -> tuple[str, ...]:
    if asked is None or available is None or asked <= budget.room(available, rail):
        return ()
    kept = budget.default_rail(available) if rail is None else rail
    return (
        f"a RAM budget of {format_bytes(asked)} is more than the {format_bytes(available)} available less a rail of {format_bytes(kept)}: "
        "it will be cut",
    )


def _few_fit(model: Model, groups: Sequence[Group], n_bytes: int | None) -> tuple[str, ...]:
    """As `_warnings`, where the bytes and not the slots are few."""
    if n_bytes is None:
        return ()
    n_fitting = budget.n_fitting(n_bytes, _slabs(groups))
    return _warnings(model, n_fitting, f"about {n_fitting} slots per expert tensor fit into {format_bytes(n_bytes)}, which")


def _planned_file(file: GgufFile) -> PlannedFile:
    path = os.path.abspath(file.path)
    try:
        found = os.stat(path)
    except OSError as error:
        raise SlotpoolError(f"cannot look at the model's file: {error.strerror}", where=printable(path)) from error
    if found.st_size != file.size or file.mtime_ns not in (0, found.st_mtime_ns):  # 0: nobody asked when it was read
        raise SlotpoolError(
            f"expected the file of {file.size} bytes that was read, found {found.st_size} bytes: it was changed while it was planned for",
            where=printable(path),
            do="Try again when nothing writes to it.",
        )
    return PlannedFile(path, found.st_size, found.st_mtime_ns, file.shard)


def _slabs(groups: Sequence[Group]) -> list[list[int]]:
    return [[tensor.slab_bytes for tensor in group.tensors] for group in groups]


def _auto(n_bytes: int | None) -> str:
    return "auto" if n_bytes is None else str(n_bytes)


def _path(path: str) -> str:
    """The path's own bytes, whatever the encoding of this system's file names is."""
    text = os.fsencode(path).decode("utf-8", "surrogateescape")
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise SlotpoolError("expected a path without control characters, found one with", where=printable(path), do="Rename the file.")
    return text


# ---- slots ----


def _groups(model: Model, wanted: int, device: str) -> tuple[Group, ...]:
    return tuple(_group(layer, pass_, tensors, wanted, device) for (layer, pass_), tensors in _by_routing(model).items())


def _all_off(model: Model, policy: str, reason: str, warnings: tuple[str, ...] = ()) -> Plan:
    return Plan(off=tuple(Off(tensor.name, reason) for tensor in model.experts), policy=policy, warnings=warnings)


def _check_bytes(ram_budget: RamBudget, rail: int | None) -> None:
    for value, words, where in ((ram_budget, ("auto",), "--ram-budget"), (rail, (), "--rail")):
        is_bytes = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_BYTES
        if value is not None and not is_bytes and value not in words:
            expected = " or ".join(("a number of bytes", *words))
            raise SlotpoolError(f"expected {expected}, found {quoted(repr(value))}", where=where)


def _rail_unused(slots: Slots, rail: int | None) -> tuple[str, ...]:
    if rail is None or slots == "auto":
        return ()
    return ("a rail has no effect without a RAM budget: the whole model is loaded",)


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


def _warnings(model: Model, wanted: int, what: str = "") -> tuple[str, ...]:
    if wanted >= min(2 * model.n_expert_used, model.n_expert):
        return ()
    found = f"{what} is" if what else f"{wanted} slots are"
    return (f"{found} fewer than twice the {model.n_expert_used} experts a token uses: this is the slow end",)


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
