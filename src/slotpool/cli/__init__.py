"""The `slotpool` command: finds the verb, runs it, and turns whatever goes wrong into a message and an exit code.

Holds no verb: each is one file here that defines `command`, and one line in VERBS. A verb returns None or an exit code,
raises SlotpoolError for what the user can change, and prints results through `output`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile

import click

from slotpool.about import version
from slotpool.cli.failure import explain
from slotpool.errors import unknown

VERBS = (
    "demo",
    "run",
    "exec",
    "top",
    "trace",
    "analyze",
    "simulate",
    "profile",
    "probe",
    "plan",
    "bench",
    "drift",
    "soak",
    "report",
    "inspect",
    "doctor",
)
"""The verbs in the order of the help. A verb's file is imported only when the verb, or the list of all, is asked for."""


class VerbGroup(click.Group):
    """A click group that imports its verbs when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of VERBS."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb `cmd_name`, None when there is none."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"slotpool.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with an unknown verb answered in the house style."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            raise unknown("verb", args[0], VERBS, where="slotpool")
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        click.echo(f"slotpool {version()}")
        ctx.exit()


@click.group(cls=VerbGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of every error.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """A persistent pool of expert slots beside unmodified llama.cpp, for mixture-of-experts models larger than fast memory."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `slotpool` with `argv` (default: the process's own) and returns the exit code: 0 ok, 1 no, 2 wrong usage or input.

    130 after an interrupt and 141 when nobody reads the output any more, both without a word; 70 for a bug of slotpool.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    _print_anything()
    try:
        code = _invoke(args)
        _flush()
        return code
    except Exception as error:
        _drop_unread_output()
        return explain(error, is_debug="--debug" in takewhile(lambda arg: arg.startswith("-"), args))
    except KeyboardInterrupt as error:
        return explain(error, is_debug=False)


def _invoke(args: list[str]) -> int:
    try:
        # click empties the list that it parses
        with cli.make_context("slotpool", list(args)) as ctx:
            code = cli.invoke(ctx)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    # a shell may close any of them (`<&-`, `2>&-`): Python then has None there, and print(file=None) goes to stdout
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - lives as long as the process


def _print_anything() -> None:
    # under LC_ALL=C a path with an umlaut must be shown escaped, not end in a UnicodeEncodeError
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    # a shell that closed our stdout (`>&-`) leaves none
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_unread_output() -> None:
    # else the interpreter tries to write it once more while it ends, and complains
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
