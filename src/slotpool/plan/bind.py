"""A plan file and the model it is used for: every tensor that the plan names is found in the model, or the plan is one of another model.

Decides nothing: slots, devices and ways are those of the file. Where experts lie is looked up again, so a plan moves with its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slotpool.errors import SlotpoolError, quoted
from slotpool.model import ExpertTensor, Model
from slotpool.plan.disk import planned_files
from slotpool.plan.facts import Group, Off, Plan
from slotpool.plan.slots import check_slots

_UNNAMED = "off: the plan does not name it"


def bind(made: Plan, model: Model, where: str = "the plan") -> Plan:
    """`made` with the tensors and files of `model`. Raises SlotpoolError for a plan of another model, or one whose slots one token cannot
    use."""
    known = {tensor.name: tensor for tensor in model.experts}
    groups = tuple(_bound(group, known, where) for group in made.groups)
    _check_biases(groups, model, where)
    for group in groups:
        if group.slots:
            check_slots(model, group.slots if group.slots < group.n_expert else model.n_expert, where)
    named = {tensor.name for group in groups for tensor in group.tensors} | {off.tensor for off in made.off}
    for name in named - set(known):
        raise _other(f"tensor {quoted(name)}, which the model does not have", where)
    unnamed = tuple(Off(name, _UNNAMED) for name in known if name not in named)
    files = planned_files(model) if made.files else ()
    if files and unnamed:
        raise _other(f"no {unnamed[0].tensor}, which would stay on disk", where)
    return replace(made, groups=groups, off=made.off + unnamed, files=files)


_UNSAID = {"slots": "auto", "policy": "default", "miss": "auto", "exact": False, "prefill": "bypass"}
"""What options of the pool are when nobody said anything; None for the others."""
_KEYWORDS = ("device", "device_budget", "ram_budget", "rail", "slots_per_layer", "slots_per_role", *_UNSAID)


def check_alone(options: Mapping[str, object]) -> None:
    """SlotpoolError for options of the pool, by the keywords of `slotpool.load`, beside a plan file: it leaves nothing else to say."""
    said = [name for name, value in options.items() if name in _KEYWORDS and value != _UNSAID.get(name)]
    if said:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in said)
        raise SlotpoolError(f"expected a plan file or options of the pool, found both (--plan, {names})", where="--plan")


def _bound(group: Group, known: dict[str, ExpertTensor], where: str) -> Group:
    tensors = []
    for planned in group.tensors:
        tensor = known.get(planned.name)
        if tensor is None:
            raise _other(f"tensor {quoted(planned.name)}, which the model does not have", where)
        mine, its = _shape(planned), _shape(tensor)
        if mine != its:
            raise _other(f"{quoted(planned.name)} with {mine} where the model has {its}", where)
        tensors.append(tensor)
    return replace(group, tensors=tuple(tensors))


def _shape(tensor: ExpertTensor) -> str:
    return f"{tensor.n_expert} experts of {tensor.slab_bytes} bytes in layer {tensor.layer}"


def _check_biases(groups: tuple[Group, ...], model: Model, where: str) -> None:
    names = {tensor.name for file in model.files for tensor in file.tensors}
    for bias in (name for group in groups for name in group.biases):
        if bias not in names:
            raise _other(f"bias {quoted(bias)}, which the model does not have", where)


def _other(found: str, where: str) -> SlotpoolError:
    return SlotpoolError(f"expected a plan of this model, found {found}", where=where, do="Make one: slotpool plan MODEL -o FILE.")
