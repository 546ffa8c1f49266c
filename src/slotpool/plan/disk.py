"""Plans whose experts stay on disk: the files, the memory, and whether a token's experts fit into it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from slotpool import budget
from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.model import GgufFile, Model
from slotpool.plan.facts import Group, Plan, PlannedFile, PlannedMemory, RamBudget, Slots
from slotpool.plan.slots import all_off, check_slots, few_slots, groups_of, wanted_slots
from slotpool.sizes import format_bytes


def on_disk(model: Model, slots: Slots, policy: str, poison: bool, ram_budget: RamBudget, rail: int | None, available: int | None) -> Plan:
    """The plan that leaves experts on disk. Arguments as of `make`."""
    if slots == 0:
        raise SlotpoolError(
            "expected slots for experts that stay on disk, found --slots 0 with a RAM budget",
            where="--ram-budget",
            do="Leave out --slots, or leave out --ram-budget to load the whole model.",
        )
    wanted = wanted_slots("all" if slots == "auto" else slots)
    check_slots(model, wanted)
    groups = groups_of(model, wanted, "CPU")
    bytes_asked = ram_budget if isinstance(ram_budget, int) else None
    n_bytes = bytes_asked if available is None else budget.room(available, rail, bytes_asked)
    too_small = _too_small(model, groups, bytes_asked, n_bytes)
    if too_small and ram_budget is None:
        return all_off(model, policy, f"off: {too_small.message}")
    if too_small:
        raise too_small
    return Plan(
        groups=groups,
        policy=policy,
        poison=poison,
        warnings=_cut(bytes_asked, rail, available) + (few_slots(model, wanted) or _few_fit(model, groups, n_bytes)),
        files=planned_files(model),
        memory=PlannedMemory(bytes_asked, rail),
    )


def behind_devices(model: Model, ram_budget: RamBudget, available: int | None) -> tuple[PlannedMemory, tuple[str, ...]]:
    """The RAM for slots between a disk and devices, and warnings. The rail of RAM is the default: `rail` is the devices'.

    Raises SlotpoolError for a budget without room for an expert that is computed and one that is read.
    """
    bytes_asked = ram_budget if isinstance(ram_budget, int) else None
    n_bytes = bytes_asked if available is None else budget.room(available, None, bytes_asked)
    smallest = budget.needed_behind_device(_slabs(groups_of(model, 1, "CPU")))
    if n_bytes is not None and n_bytes < smallest:
        what = f"an expert that is computed and one that is read need {format_bytes(smallest)}"
        if bytes_asked is not None and bytes_asked < smallest:
            do = f"Try --ram-budget {budget.as_option(smallest)}, the smallest that works, or more: slots are what is left."
            raise SlotpoolError(f"{what}, the RAM budget is {format_bytes(bytes_asked)}", where="--ram-budget", do=do)
        do = "Free memory, or raise the limit of the control group."
        raise SlotpoolError(f"{what}, {format_bytes(n_bytes)} are available less the rail", where="--ram-budget", do=do, exit_code=REFUSED)
    return PlannedMemory(bytes_asked), _cut(bytes_asked, None, available)


def repacked(made: Plan, may_repack: bool) -> Plan:
    """`made` with slots that hold experts as llama.cpp repacks weights, where it may: experts of files, slots of the CPU."""
    return replace(made, is_repacked=may_repack and made.reads_files and not made.devices)


def planned_files(model: Model) -> tuple[PlannedFile, ...]:
    """The model's files as they are now. SlotpoolError for one that is not what `model` was read from."""
    return tuple(_planned_file(file) for file in model.files)


def fits(model: Model, rail: int | None, available: int | None) -> bool:
    """Whether all weights and the rail fit into the `available` bytes; None is as many as it takes."""
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
    """As `few_slots`, where the bytes and not the slots are few."""
    if n_bytes is None:
        return ()
    n_fitting = budget.n_fitting(n_bytes, _slabs(groups))
    return few_slots(model, n_fitting, f"about {n_fitting} slots per expert tensor fit into {format_bytes(n_bytes)}, which")


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
