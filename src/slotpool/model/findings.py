"""Collects problems and keeps their number readable: the first few of a kind, then a count.

Does not judge: whoever adds a finding has decided that llama.cpp would not load the file.
"""

from __future__ import annotations

_SHOWN = 5


class Findings:
    """Problems by kind. A hostile file can have a million of one kind; five are worded, the rest counted."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def add(self, kind: str, text: str) -> None:
        """Adds one problem. `kind` is a word for the rule, the same for all problems that one rule finds."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= _SHOWN:
            self._texts.setdefault(kind, []).append(text)

    def texts(self) -> tuple[str, ...]:
        """All problems, in the order in which their kinds were first found."""
        return tuple(line for kind, lines in self._texts.items() for line in [*lines, *self._rest(kind)])

    def _rest(self, kind: str) -> list[str]:
        n_more = self._counts[kind] - _SHOWN
        return [f"... and {n_more} more like this ({kind})"] if n_more > 0 else []
