"""Slots that a user asked for by layer or by role: how they are written, and the groups that follow.

Knows no memory: whether they fit, and who yields when not, is decided where the bytes are known (`core/plan/fit.h`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from slotpool.errors import SlotpoolError, quoted, unknown
from slotpool.model import ExpertTensor, Model
from slotpool.plan.facts import DYNAMIC, EXPLICIT, WHOLE, Group, Off, Plan, Slots
from slotpool.plan.slots import check_slots, few_slots, wanted_slots

PerLayer: TypeAlias = Mapping[int, Slots] | str | None
"""Slots by layer, or as a user writes them: `0-3=off,4-20=32,21=all`."""
PerRole: TypeAlias = Mapping[str, Slots] | str | None
"""Slots by role, or as a user writes them: `down=32,gate=16`."""
LAYERS, ROLES = "--slots-per-layer", "--slots-per-role"
_LAYERS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_MAX_LAYERS = 1 << 16


@dataclass(frozen=True)
class Asked:
    """Slots by layer and by role; a layer's own number comes before its roles'. `auto` is what all other tensors get."""

    layers: Mapping[int, Slots]
    roles: Mapping[str, Slots]

    def __bool__(self) -> bool:
        return bool(self.layers or self.roles)

    def of(self, tensor: ExpertTensor) -> int | None:
        """Slots of the tensor, at most one for each expert; None where nobody asked."""
        slots = self.layers.get(tensor.layer, self.roles.get(tensor.role, "auto"))
        return None if slots == "auto" else min(wanted_slots(slots), tensor.n_expert)


def asked_of(model: Model, layers: PerLayer, roles: PerRole) -> Asked:
    """What was asked for of `model`. Raises SlotpoolError for what cannot be read, a layer or role that the model does not have, and
    slots that one token cannot use."""
    by_layer = dict(_spans(layers)) if isinstance(layers, str) else dict(layers or {})
    by_role = dict(_pairs(roles, ROLES)) if isinstance(roles, str) else dict(roles or {})
    known = sorted({tensor.layer for tensor in model.experts})
    for layer in by_layer:
        if layer not in known:
            found = f"{known[0]} to {known[-1]}" if known else "none"
            raise SlotpoolError(f"expected a layer with experts ({found}), found layer {layer}", where=LAYERS)
    for role in by_role:
        if role not in model.roles:
            raise unknown("role of expert tensors", role, model.roles, where=ROLES)
    for where, values in ((LAYERS, by_layer.values()), (ROLES, by_role.values())):
        for slots in values:
            if wanted_slots(slots, where):
                check_slots(model, wanted_slots(slots, where), where)
    return Asked(by_layer, by_role)


def applied(made: Plan, asked: Asked, model: Model, off_else: str) -> Plan:
    """`made` with what was asked for; tensors of a group that differ have groups of their own. Other tensors keep their slots, or, with a
    reason in `off_else`, have none. Raises SlotpoolError for tensors without slots whose experts stay on disk."""
    groups: list[Group] = []
    off: list[Off] = []
    for group in made.groups:
        for part in _parts(group, asked, bool(off_else)):
            if part.slots or part.device != "CPU":
                groups.append(part)
            else:
                off += [Off(tensor.name, _reason(asked, tensor, off_else)) for tensor in part.tensors]
    if made.files and (off or any(not group.slots for group in groups)):
        raise SlotpoolError("expected slots for every expert tensor, since experts stay on disk, found some with none", where="--slots")
    numbers = [n for tensor in model.experts if (n := asked.of(tensor)) and n < tensor.n_expert]
    warnings = made.warnings + (few_slots(model, min(numbers)) if numbers else ())
    return replace(made, groups=tuple(groups), off=made.off + tuple(off), warnings=tuple(dict.fromkeys(warnings)))


def _parts(group: Group, asked: Asked, is_off_else: bool) -> Iterator[Group]:
    """The group's tensors by their slots, in the order of the graph."""
    parts: dict[tuple[int, str], list[ExpertTensor]] = {}
    for tensor in group.tensors:
        slots = asked.of(tensor)
        claim = DYNAMIC if slots is None and not is_off_else else WHOLE if slots == group.n_expert else EXPLICIT
        number = (0 if is_off_else else group.slots) if slots is None else slots
        parts.setdefault((number, claim), []).append(tensor)
    for (number, claim), tensors in parts.items():
        names = {f"{tensor.name.removesuffix('.weight')}.bias" for tensor in tensors}
        biases = tuple(name for name in group.biases if name in names)
        yield replace(group, slots=number, claim=claim, tensors=tuple(tensors), biases=biases)


def _reason(asked: Asked, tensor: ExpertTensor, off_else: str) -> str:
    return off_else if asked.of(tensor) is None else "off: 0 slots asked for"


def _spans(text: str) -> Iterator[tuple[int, Slots]]:
    for name, slots in _pairs(text, LAYERS):
        match = _LAYERS.fullmatch(name)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > _MAX_LAYERS:
            raise _bad(LAYERS, f"{name}={slots}")
        yield from ((layer, slots) for layer in range(first, last + 1))


def _pairs(text: str, where: str) -> Iterator[tuple[str, Slots]]:
    """(what, slots) of each part; SlotpoolError for a part that is none, or that is there twice."""
    seen: set[str] = set()
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or not name or name in seen:
            raise _bad(where, part)
        seen.add(name)
        yield name, _slots(value, where, part)


def _slots(value: str, where: str, part: str) -> Slots:
    if value in ("auto", "all"):
        return value
    if value == "off":
        return 0
    if value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    raise _bad(where, part)


def _bad(where: str, found: str) -> SlotpoolError:
    form = "LAYERS=SLOTS, as in 0-3=off,4-20=32,21=all" if where == LAYERS else "ROLE=SLOTS, as in down=32,gate=16"
    return SlotpoolError(f'expected {form}, each once, found "{quoted(found)}"', where=where)
