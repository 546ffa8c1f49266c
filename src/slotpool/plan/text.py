"""The plan file that the core reads; its format is stated in `core/plan/plan.h`."""

from __future__ import annotations

import os

from slotpool.errors import SlotpoolError, printable
from slotpool.plan.facts import DYNAMIC, Plan


def to_text(plan: Plan, *, report: str = "") -> str:
    """The plan file, one statement a line; bytes of a path that are not UTF-8 are surrogates, so encode with `surrogateescape`.

    `report` is the path of a file where the core leaves what the pool did (`core/backend/exit_report.h`); empty: nowhere.

    Raises SlotpoolError for a tensor name, a path or a reason that the format cannot hold.
    """
    lines = ["slotpool-plan 1", f"policy {plan.policy}" + (f" {plan.decay!r}" if plan.policy != "lru" else "")]
    lines.append(f"poison {'on' if plan.poison else 'off'}")
    if plan.is_bypassed:
        lines.append("bypass on")
    if plan.is_repacked:
        lines.append("repack on")
    if (plan.misses, plan.is_settled) != ("copy", False):
        lines.append(f"misses {plan.misses} {'settled' if plan.is_settled else 'background'}")
    if plan.prefill != "bypass":
        lines.append(f"prefill {plan.prefill}")
    if plan.contexts != "all":
        lines.append(f"contexts {plan.contexts}")
    for device in plan.devices:
        lines.append(f"device {_word(device.name)} slots={device.slots} budget={_auto(device.budget)} rail={_auto(device.rail)}")
    if plan.memory:
        lines.append(f"memory budget={_auto(plan.memory.budget)} rail={_auto(plan.memory.rail)} reserve={plan.memory.reserve}")
    for index, file in enumerate(plan.files):
        lines.append(f"file {index} size={file.size} mtime={file.mtime_ns} path={_path(file.path)}")
    numbers = {file.shard: index for index, file in enumerate(plan.files)}
    for group in plan.groups:
        claim = "" if group.claim == DYNAMIC else f" claim={group.claim}"
        place = f"layer={group.layer} pass={group.pass_} device={group.device}"
        lines.append(f"group {place} slots={group.slots} n_expert={group.n_expert}{claim}")
        for tensor in group.tensors:
            where = f" file={numbers[tensor.shard]} offset={tensor.offset}" if plan.files else ""
            lines.append(f"tensor {_word(tensor.name)} role={tensor.role} slab={tensor.slab_bytes}{where}")
        lines.extend(f"bias {_word(name)}" for name in group.biases)
        if group.warm:
            lines.append("warm " + " ".join(f"{expert}:{millionths}" for expert, millionths in group.warm))
    lines.extend(f"off {_word(off.tensor)} {_reason(off.reason)}" for off in plan.off)
    if plan.pin:
        lines.append(f"pin share={plan.pin.millionths} slots={plan.pin.slots} spare={plan.pin.spare}")
    if plan.has_heat_report:
        lines.append("heat on")
    if report:
        lines.append(f"report path={_path(report)}")
    return "\n".join(lines) + "\n"


def _auto(n_bytes: int | None) -> str:
    return "auto" if n_bytes is None else str(n_bytes)


def _path(path: str) -> str:
    """The path's own bytes, whatever the encoding of this system's file names is."""
    text = os.fsencode(path).decode("utf-8", "surrogateescape")
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise SlotpoolError("expected a path without control characters, found one with", where=printable(path), do="Rename the file.")
    return text


def _reason(text: str) -> str:
    if not text.strip() or any(ord(char) < 0x20 for char in text):
        raise SlotpoolError(f"expected a reason of one line, found {text!r}")
    return text


def _word(name: str) -> str:
    if not name or any(char.isspace() for char in name):
        raise SlotpoolError(f"expected a tensor name without spaces, found {name!r}")
    return name
