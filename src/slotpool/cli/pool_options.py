"""The pool options that every verb with a pool takes, and what they mean; said once here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from slotpool.errors import SlotpoolError, quoted
from slotpool.plan import POLICIES, Slots

_Command = TypeVar("_Command", bound=Callable[..., Any])


def parse_slots(value: str) -> Slots:
    """`auto` and `all` as they are, a number as int. Raises SlotpoolError for anything else."""
    if value in ("auto", "all"):
        return value
    if value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    raise SlotpoolError(f'expected a number, all, auto or 0, found "{quoted(value)}"', where="--slots")


def pool_options(default_slots: Slots) -> Callable[[_Command], _Command]:
    """The options `--slots`, `--policy` and `--require-pool`, given to the verb as `slots`, `policy`, `require_pool`."""

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
        require = click.option("--require-pool", is_flag=True, help="Fail (exit code 1) when nothing is pooled.")
        return slots(policy(require(command)))

    return add
