"""A bar on stderr for what takes long, on a terminal only: nothing in a pipe, nothing left behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from slotpool.errors import printable


@contextmanager
def bar(total: int, *, is_shown: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Gives a function that is told how many of `total` are done and what comes next."""
    with open_bar(is_shown=is_shown and total > 0) as show:
        show(0, total, "")
        yield lambda done, what: show(done, total, what)


@contextmanager
def open_bar(*, is_shown: bool = True, is_moving: bool = True) -> Iterator[Callable[[int, int, str], None]]:
    """The same where the total is known on the way: gives a function that is told how many are done, how many there are, and what comes.

    With `is_moving` false nothing is drawn but when it is told: no thread of ours takes time from what is being measured.
    """
    if not is_shown or not sys.stderr.isatty():
        yield lambda _done, _total, _what: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=is_moving) as progress:
        task = progress.add_task("", total=None)

        def show(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, description=escape(printable(what)), refresh=not is_moving)

        yield show
