"""Which experts were asked for right after which, as plain lists of counts: the twin of `core/policy/successors.h`."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 1024
"""Rows and columns at most; with more experts than that, some share a place."""
FULL = 255
"""No count grows beyond it; an expert's counts are halved when its own is full."""
DOUBT = 1.0
"""As if every expert had been followed by nobody this often."""


class Successors:
    """Counts over the pairs (expert of an event, expert of the next event)."""

    def __init__(self, n_expert: int) -> None:
        width = 1
        while width < n_expert and width < WIDTH:
            width *= 2
        self._width = width
        self._counts: dict[int, dict[int, int]] = {}
        self._asked: dict[int, int] = {}
        self._rows: list[tuple[dict[int, int], float]] = []

    def learn(self, before: Sequence[int], now: Sequence[int]) -> None:
        """The experts `now` were asked for by the event right after the one of `before`; distinct experts each."""
        for expert in before:
            row = expert % self._width
            counts = self._counts.setdefault(row, {})
            if self._asked.get(row) == FULL:
                self._asked[row] //= 2
                for column in counts:
                    counts[column] //= 2
            self._asked[row] = self._asked.get(row, 0) + 1
            for other in now:
                column = other % self._width
                counts[column] = min(counts.get(column, 0) + 1, FULL)

    def follow(self, event: Sequence[int]) -> None:
        """From now on likelihood() is about what follows `event`."""
        rows = [expert % self._width for expert in event]
        self._rows = [(self._counts.get(row, {}), 1.0 / ((self._asked.get(row, 0) + DOUBT) * len(event))) for row in rows]

    def likelihood(self, expert: int) -> float:
        """The share of the times that an expert of the event was followed by `expert`, averaged over the event's experts."""
        total = 0.0  # sum() may add in another way
        for counts, weight in self._rows:
            total += counts.get(expert % self._width, 0) * weight
        return total
