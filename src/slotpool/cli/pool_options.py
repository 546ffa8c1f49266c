"""The pool options that every verb with a pool takes, and what they mean; said once here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from slotpool.cli.parameters import byte_size, byte_sizes
from slotpool.errors import SlotpoolError, quoted
from slotpool.plan import MISSES, POLICIES, PREFILL, RamBudget, Slots

_Command = TypeVar("_Command", bound=Callable[..., Any])


def parse_slots(value: str) -> Slots | list[Slots]:
    """`auto` and `all` as they are, a number as int; several, one for each device, with commas. SlotpoolError for anything else."""
    found = [_parse_one(one) for one in value.split(",")]
    return found[0] if len(found) == 1 else found


def _parse_one(value: str) -> Slots:
    if value in ("auto", "all"):
        return value
    if value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    raise SlotpoolError(f'expected a number, all, auto or 0, found "{quoted(value)}"', where="--slots")


def pool_options(default_slots: Slots | None, default_in_words: str = "") -> Callable[[_Command], _Command]:
    """The pool options, given to the verb as the keywords of `slotpool.load` that they are.

    A verb that chooses the slots itself has no default but words for it, and gets None.
    """
    help_of_slots = "Slots per expert tensor; 0 is off, all is every expert. One number, or one for each device."

    def add(command: _Command) -> _Command:
        slots = click.option(
            "--slots",
            metavar="auto|all|N[,N]",
            default=None if default_slots is None else str(default_slots),
            show_default=default_slots is not None,
            callback=lambda _ctx, _param, value: None if value is None else parse_slots(value),
            help=help_of_slots + (f"  [default: {default_in_words}]" if default_in_words else ""),
        )
        per_layer = click.option(
            "--slots-per-layer",
            metavar="LAYERS=SLOTS[,...]",
            help="Slots of some layers, before all others: 0-3=off,4-20=32,21=all.",
        )
        per_role = click.option(
            "--slots-per-role",
            metavar="ROLE=SLOTS[,...]",
            help="Slots of tensors of some roles (slotpool inspect shows them): down=32,gate=16.",
        )
        policy = click.option("--policy", type=str, default="default", show_default=True, help=f"Who is evicted: {', '.join(POLICIES)}.")
        ram_budget = click.option(
            "--ram-budget",
            metavar="BYTES|auto",
            callback=_byte_size_or_auto,
            help="Experts stay on disk and are read into slots of so much RAM; auto is what is available.",
        )
        rail = click.option(
            "--rail",
            metavar="BYTES[,BYTES]",
            callback=byte_sizes,
            help="Memory that stays free.  [default: 1GiB of a device; of RAM 2 % of what is available, at least 64MiB]",
        )
        miss = click.option("--miss", type=str, default="auto", show_default=True, help=f"How misses are served: {', '.join(MISSES)}.")
        prefill = click.option(
            "--prefill",
            type=str,
            default="bypass",
            show_default=True,
            help=f"Prompts that do not fit a device's slots: llama.cpp's own path, through the pool, or the cheaper: {', '.join(PREFILL)}.",
        )
        exact = click.option("--exact", is_flag=True, help="Only the device's own kernels compute, whatever --miss auto finds cheaper.")
        device = click.option(
            "--device",
            metavar="NAME[,NAME]",
            callback=lambda _ctx, _param, value: value and value.split(","),
            help="Where slots are, by ggml's name (slotpool doctor lists them).  [default: the GPUs, or the CPU where there are none]",
        )
        device_budget = click.option(
            "--device-budget", metavar="BYTES[,BYTES]", callback=byte_sizes, help="Bytes of a device for slots.  [default: what is free]"
        )
        rpc = click.option(
            "--rpc",
            metavar="HOST:PORT[,HOST:PORT]",
            callback=lambda _ctx, _param, value: value.split(",") if value else [],
            help="Add the devices of RPC servers.",
        )
        profile = click.option(
            "--profile",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Slots begin with what this says is hot: a profile, a trace, an imatrix.",
        )
        pin = click.option(
            "--pin",
            metavar="SHARE|N",
            help="Never evict the profile's hottest experts: a share of the slots (25%), or a number of them.",
        )
        require = click.option("--require-pool", is_flag=True, help="Fail (exit code 1) when nothing is pooled.")
        return slots(
            per_layer(per_role(miss(prefill(policy(device(device_budget(rpc(ram_budget(rail(exact(profile(pin(require(command))))))))))))))
        )

    return add


def plan_option(command: _Command) -> _Command:
    """The plan file, for verbs that run under one; given to them as `plan_file`."""
    return click.option(
        "--plan",
        "plan_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A plan that slotpool plan -o wrote.",
    )(command)


NAMES = (
    "slots",
    "slots_per_layer",
    "slots_per_role",
    "miss",
    "prefill",
    "policy",
    "device",
    "device_budget",
    "rpc",
    "ram_budget",
    "rail",
    "exact",
    "profile",
    "pin",
    "require_pool",
)
"""The options by the names of `slotpool.load`'s keywords."""


def taken(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the pool's options out of `options`, as keywords of `slotpool.load`."""
    return {name: options.pop(name) for name in NAMES}


def save_profile_option(command: _Command) -> _Command:
    """The option of verbs that can keep what was hot for the next session."""
    text = "Keep which experts were asked for, for the next session's --profile; a profile of this model that is there is replaced."
    return click.option("--save-profile", type=click.Path(path_type=Path), metavar="FILE", help=text)(command)


def planned(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the pool's options out of `options`, as keywords of `slotpool.plan.make`: for programs whose devices are their own.

    `profile` and `pin` are no keywords of it and stay.
    """
    found = {name: options.pop(name) for name in NAMES if name not in ("profile", "pin")}
    if found.pop("rpc"):
        raise SlotpoolError("expected RPC servers among the program's own arguments, found them before --", where="--rpc")
    found.pop("require_pool")
    return found | {"misses": found.pop("miss"), "devices": [one for one in found.pop("device") or () if one != "CPU"]}


def _byte_size_or_auto(ctx: click.Context, param: click.Parameter, value: str | None) -> RamBudget:
    if value == "auto":
        return value
    try:
        return byte_size(ctx, param, value)
    except SlotpoolError as error:
        raise SlotpoolError(error.message, where=error.where, do=f"{error.do} auto is what is available.".strip()) from error
