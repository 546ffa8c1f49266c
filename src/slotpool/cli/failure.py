"""The one place where an exception becomes a message on stderr and an exit code.

Does not end the process: `main` returns the code.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import click

from slotpool.errors import MISUSED, SlotpoolError, printable, quoted, unknown

BUG = 70
"""Exit code for an exception that nobody foresaw (EX_SOFTWARE), so that scripts can tell it from a refusal."""
INTERRUPTED = 130
UNREAD = 141
"""As the shell reports SIGPIPE."""


def explain(error: BaseException, *, is_debug: bool) -> int:
    """Says on stderr what `error` means to the user, in at most four lines, and returns the exit code.

    With `is_debug` the traceback comes before the message.
    """
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return UNREAD
    if is_debug:
        traceback.print_exception(error, file=sys.stderr)
    meant = _as_meant(error)
    print(f"slotpool: {meant if meant else _bug(error)}", file=sys.stderr)
    return meant.exit_code if meant else BUG


def _as_meant(error: BaseException) -> SlotpoolError | None:
    """The error in the house style; None when it is a bug."""
    if isinstance(error, SlotpoolError):
        return error
    if isinstance(error, click.ClickException):
        return _usage_error(error)
    if isinstance(error, OSError) and error.strerror:
        place = printable(str(error.filename)) if error.filename is not None else ""
        return SlotpoolError(f"the system says no: {error.strerror}", where=place)
    return None


def _bug(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    what = quoted(f"{type(error).__name__}: {error}")
    return f"this is a bug in slotpool: {what}{place}. Please report it with the traceback that slotpool --debug VERB ... shows."


def _usage_error(error: click.ClickException) -> SlotpoolError:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    where = ctx.command_path if ctx else ""
    if isinstance(error, click.NoSuchOption):
        return unknown("option", error.option_name, _option_names(ctx), where=where)
    return SlotpoolError(_wording(error), where=where, do=_usage(ctx), exit_code=MISUSED)


def _wording(error: click.ClickException) -> str:
    if isinstance(error, click.MissingParameter):
        what = error.param.human_readable_name if error.param else "a parameter"
        return f"expected {what}, found nothing"
    # click's messages quote what was found; a stray line end in it must not spread over the terminal
    return printable(error.format_message().rstrip("."))


def _usage(ctx: click.Context | None) -> str:
    if ctx is None:
        return ""
    pieces = " ".join(ctx.command.collect_usage_pieces(ctx))
    return f"Usage: {ctx.command_path} {pieces}"


def _option_names(ctx: click.Context | None) -> list[str]:
    if ctx is None:
        return []
    options = [param for param in ctx.command.get_params(ctx) if isinstance(param, click.Option) and not param.hidden]
    return [name for option in options for name in (*option.opts, *option.secondary_opts) if name.startswith("--")]
