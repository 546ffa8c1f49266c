"""Slots as a user asks for them, and the groups that get them.

Knows no memory and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slotpool.errors import SlotpoolError
from slotpool.model import ExpertTensor, Model
from slotpool.plan.facts import PASSES, Group, Off, Plan, Slots


def groups_of(model: Model, wanted: int, device: str) -> tuple[Group, ...]:
    """Every group of `model` with at most `wanted` slots on `device`."""
    return tuple(_group(layer, pass_, tensors, wanted, device) for (layer, pass_), tensors in _by_routing(model).items())


def all_off(model: Model, policy: str, reason: str, warnings: tuple[str, ...] = ()) -> Plan:
    """The plan without slots."""
    return Plan(off=tuple(Off(tensor.name, reason) for tensor in model.experts), policy=policy, warnings=warnings)


def wanted_slots(slots: Slots, where: str = "--slots") -> int:
    """`slots` as a number: 0 for `auto`, more than any tensor has experts for `all`. SlotpoolError for what is no slots."""
    if isinstance(slots, bool) or not isinstance(slots, int | str):
        raise _bad_slots(repr(slots), where)
    if slots in ("auto", 0):
        return 0
    if slots == "all":
        return 1 << 30
    if isinstance(slots, str):
        raise _bad_slots(f'"{slots}"', where)
    if slots < 0:
        raise _bad_slots(str(slots), where)
    return slots


def _bad_slots(found: str, where: str) -> SlotpoolError:
    return SlotpoolError(f"expected slots as a number, all, auto or 0, found {found}", where=where)


def check_slots(model: Model, wanted: int, where: str = "--slots") -> None:
    """SlotpoolError for fewer slots than one token uses."""
    if wanted < model.n_expert_used:
        raise SlotpoolError(
            f"expected at least {model.n_expert_used} slots, which one token uses, found {wanted}",
            where=where,
            do=f"Try {'--slots ' if where == '--slots' else ''}{min(2 * model.n_expert_used, model.n_expert)}, or 0 for none.",
        )


def few_slots(model: Model, wanted: int, what: str = "") -> tuple[str, ...]:
    """A warning where there are slots and not many; `what` is what the number is."""
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


def with_biases(groups: Sequence[Group], model: Model) -> tuple[Group, ...]:
    """The groups with the biases of their tensors, where the model has some."""
    names = {tensor.name for file in model.files for tensor in file.tensors}
    biases = [[f"{tensor.name.removesuffix('.weight')}.bias" for tensor in group.tensors] for group in groups]
    return tuple(replace(group, biases=tuple(name for name in of if name in names)) for group, of in zip(groups, biases, strict=True))
