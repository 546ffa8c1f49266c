"""Compares the arms' logits block by block: the whole drift, what placement makes of it, and what the pool does.

Keeps sums and one float64 a token, never logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from slotpool.drift.facts import CPU, DEVICE, POOL, Difference, Share, TextDrift
from slotpool.drift.numbers import Logits, Logs, Perplexity, Tally, log_softmax, merged, same_rows

Naming = Callable[[int, int], Difference]
"""(number of the text, index of the token in it) -> the token by name."""


class Comparison:
    """Sums of one measurement. `arms` has CPU and POOL, and DEVICE where plain llama.cpp runs there as well."""

    def __init__(self, arms: Sequence[str], texts: Sequence[str], name: Naming) -> None:
        self._texts, self._name = texts, name
        own_kind = DEVICE if DEVICE in arms else CPU
        self._pairs = {"total": (CPU, POOL), "pool": (own_kind, POOL)} | ({"placement": (CPU, DEVICE)} if DEVICE in arms else {})
        self._tallies = [{pair: Tally() for pair in self._pairs} for _ in texts]
        self._ppl = [{arm: Perplexity() for arm in arms} for _ in texts]

    def add(self, text: int, rows: Mapping[str, Logits], following: Sequence[int]) -> None:
        """Takes a block: the logits [n, n_vocab] of every arm, and the tokens that follow its own (n, or n - 1 at a window's end)."""
        logs = _logs(rows)
        for pair, (reference, other) in self._pairs.items():
            self._tallies[text][pair].add(rows[reference], rows[other], logs[reference], logs[other])
        for arm, sums in self._ppl[text].items():
            sums.add(-logs[arm][np.arange(len(following)), np.array(following, np.intp)])

    @property
    def has_placement(self) -> bool:
        """Whether plain llama.cpp ran on the device as well."""
        return "placement" in self._pairs

    def share(self, pair: str) -> Share:
        """The drift of a pair of arms (`total`, `pool`, `placement`) over all texts."""
        tallies = [tallies[pair] for tallies in self._tallies]
        first = next(((number, tally.first) for number, tally in enumerate(tallies) if tally.first is not None), None)
        return self._share(merged(tallies), first)

    def texts(self, lengths: Sequence[int]) -> tuple[TextDrift, ...]:
        """Text by text; `lengths` are their tokens before any limit."""
        return tuple(self._text(number, length) for number, length in enumerate(lengths))

    def _text(self, number: int, length: int) -> TextDrift:
        total, pool = (self._of(number, pair) for pair in ("total", "pool"))
        ppl = {arm: sums.result() for arm, sums in self._ppl[number].items()}
        return TextDrift(self._texts[number], total.n_tokens, length, ppl, total, pool)

    def _of(self, number: int, pair: str) -> Share:
        tally = self._tallies[number][pair]
        return self._share(tally, None if tally.first is None else (number, tally.first))

    def _share(self, tally: Tally, first: tuple[int, int] | None) -> Share:
        return Share(
            kld=tally.kld(),
            top1_flips=tally.top1_flips,
            n_tokens=tally.n,
            n_different=tally.n_different,
            n_not_finite=tally.n_not_finite,
            largest=tally.largest,
            first_difference=self._name(*first) if first else None,
        )


def _logs(rows: Mapping[str, Logits]) -> dict[str, Logs]:
    """Log-probabilities of every arm; computed once where the bits are the same."""
    found: dict[str, Logs] = {}
    for arm, own in rows.items():
        twin = next((other for other in found if same_rows(rows[other], own).all()), None)
        found[arm] = log_softmax(own) if twin is None else found[twin]
    return found
