"""The pool options that every verb with a pool takes, and what they mean; said once here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from slotpool.cli.parameters import byte_size
from slotpool.errors import SlotpoolError, quoted
from slotpool.plan import POLICIES, RamBudget, Slots

_Command = TypeVar("_Command", bound=Callable[..., Any])


def parse_slots(value: str) -> Slots:
    """`auto` and `all` as they are, a number as int. Raises SlotpoolError for anything else."""
    if value in ("auto", "all"):
        return value
    if value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    raise SlotpoolError(f'expected a number, all, auto or 0, found "{quoted(value)}"', where="--slots")


def pool_options(default_slots: Slots) -> Callable[[_Command], _Command]:
    """The pool options, given to the verb as `slots`, `policy`, `ram_budget`, `rail` and `require_pool`."""

    def add(command: _Command) -> _Command:
        slots = click.option(
            "--slots",
            metavar="auto|all|N",
            default=str(default_slots),
            show_default=True,
            callback=lambda _ctx, _param, value: parse_slots(value),
            help="Slots per expert tensor; 0 is off, all is every expert.",
        )
        policy = click.option("--policy", type=str, default="default", show_default=True, help=f"Who is evicted: {', '.join(POLICIES)}.")
        ram_budget = click.option(
            "--ram-budget",
            metavar="BYTES|auto",
            callback=_byte_size_or_auto,
            help="Experts stay on disk and are read into slots of so much RAM; auto is what is available.",
        )
        rail = click.option(
            "--rail", metavar="BYTES", callback=byte_size, help="RAM that stays free.  [default: 2 % of what is available, at least 64MiB]"
        )
        require = click.option("--require-pool", is_flag=True, help="Fail (exit code 1) when nothing is pooled.")
        return slots(policy(ram_budget(rail(require(command)))))

    return add


def _byte_size_or_auto(ctx: click.Context, param: click.Parameter, value: str | None) -> RamBudget:
    if value == "auto":
        return value
    try:
        return byte_size(ctx, param, value)
    except SlotpoolError as error:
        raise SlotpoolError(error.message, where=error.where, do=f"{error.do} auto is what is available.".strip()) from error
