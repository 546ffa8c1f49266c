"""What every arm computes, in the order in which it does: the chunks, then every text in windows and blocks.

Holds tokens; computes and compares nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slotpool.drift.facts import BLOCK


@dataclass(frozen=True)
class Schedule:
    """Token ids: `texts` as far as they are computed, `chunks` as prompts. A window is what fits a context of `n_ctx` tokens."""

    texts: tuple[Sequence[int], ...]
    chunks: tuple[Sequence[int], ...]
    n_ctx: int

    @property
    def n_prompt_tokens(self) -> int:
        return sum(len(ids) for ids in self.chunks)

    @property
    def n_text_tokens(self) -> int:
        return sum(len(ids) for ids in self.texts)

    def windows(self, text: int) -> Iterator[Sequence[int]]:
        """The parts of a text, each of which begins in an empty context."""
        ids = self.texts[text]
        return (ids[first : first + self.n_ctx] for first in range(0, len(ids), self.n_ctx))


def blocks(window: Sequence[int]) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """The blocks of a window, each with the tokens that follow its own: one less at the window's end."""
    for first in range(0, len(window), BLOCK):
        yield window[first : first + BLOCK], window[first + 1 : first + 1 + BLOCK]
