"""Kinds of options that several verbs share: one of some names, a size in bytes.

Does not know any verb.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from slotpool.errors import unknown
from slotpool.sizes import parse_bytes


class OneOf(click.Choice):  # type: ignore[type-arg]  # generic since click 8.2 only
    """One of `names`; anything else is answered with all of them and the nearest."""

    def __init__(self, kind: str, names: Sequence[str]) -> None:
        super().__init__(list(names))
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """`value` when it is valid, SlotpoolError when not."""
        if str(value) in self.choices:
            return str(value)
        raise unknown(self.kind, str(value), self.choices, where=_place(param, ctx))


def byte_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that takes a size (`callback=byte_size, metavar="BYTES"`): bytes, None when it is not given."""
    return None if value is None else parse_bytes(value, where=_place(param, ctx))


def byte_sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | list[int] | None:
    """The callback of an option that takes one size, or several with commas: one for each device."""
    if value is None:
        return None
    sizes = [parse_bytes(one, where=_place(param, ctx)) for one in value.split(",")]
    return sizes[0] if len(sizes) == 1 else sizes


def _place(param: click.Parameter | None, ctx: click.Context | None) -> str:
    option = max(param.opts, key=len) if param and isinstance(param, click.Option) else ""
    return " ".join(part for part in (ctx.command_path if ctx else "", option) if part)
