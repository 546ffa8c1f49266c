"""A bar on stderr for what takes long, on a terminal only: nothing in a pipe, nothing left behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from slotpool.errors import printable


@contextmanager
def bar(total: int, *, is_shown: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Gives a function that is told how many of `total` are done and what comes next."""
    if not total or not is_shown or not sys.stderr.isatty():
        yield lambda _done, _what: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done, what: progress.update(task, completed=done, description=escape(printable(what)))
