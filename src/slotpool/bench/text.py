"""The text that a bench reads, fixed by its hash, and its windows: every round another one, the same for every arm of the round."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from slotpool import texts
from slotpool.bench.settings import Settings
from slotpool.errors import SlotpoolError

BUNDLED = ("prose.txt", "code.txt")


@dataclass(frozen=True)
class Text:
    """`name` of the file, or `bundled`; its bytes, and their SHA-256."""

    name: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Window:
    """The tokens of a round: `before` (as many as the depth) stand before both prompts, `warm` follows the first, `generate` the second.

    Of a cold bench `first` is empty: the one prompt is `prompt`.
    """

    before: tuple[int, ...]
    first: tuple[int, ...]
    warm: tuple[int, ...]
    prompt: tuple[int, ...]
    generate: tuple[int, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, hexadecimal: what every arm of the round must have read."""
        parts = ((self.before, self.first, self.warm, self.prompt, self.generate),)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def read_text(path: Path | None) -> Text:
    """The file's text, or the package's own: prose, then code. SlotpoolError as `texts.read_text`."""
    if path is None:
        folder = resources.files("slotpool") / "data"
        return Text("bundled", b"\n".join((folder / name).read_bytes() for name in BUNDLED))
    return Text(path.name, texts.read_text(path))


def window(tokens: Sequence[int], settings: Settings, depth: int, number: int) -> Window:
    """The window of round `number`. All of them lie behind the deepest depth, so that every depth measures the same tokens.

    SlotpoolError when the text has too few tokens; with `repeats`, when it has not enough for one round.
    """
    start = max(settings.depths) + settings.tokens_a_round * (number % _n_windows(tokens, settings))
    before = tokens[start - depth : start]
    parts = []
    lengths = (settings.n_prompt, settings.n_warm) if settings.is_warm else (0, 0)
    for length in (*lengths, settings.n_prompt, settings.n_generate):
        parts.append(tuple(tokens[start : start + length]))
        start += length
    return Window(tuple(before), *parts)


def is_repeated(tokens: Sequence[int], settings: Settings) -> bool:
    """Whether some rounds read what others read."""
    return _n_windows(tokens, settings) < settings.rounds


def _n_windows(tokens: Sequence[int], settings: Settings) -> int:
    found = max(0, len(tokens) - max(settings.depths)) // settings.tokens_a_round
    if found >= settings.rounds or (settings.repeats and found):
        return found
    n_rounds = 1 if settings.repeats else settings.rounds
    needed = max(settings.depths) + n_rounds * settings.tokens_a_round
    raise SlotpoolError(
        f"expected a text of {needed} tokens for {n_rounds} rounds of {settings.tokens_a_round} at depth {max(settings.depths)}, "
        f"found {len(tokens)}",
        where="-f",
        do="Name a longer text" + ("." if settings.repeats else ", fewer --rounds, or --repeat to use it again."),
    )
