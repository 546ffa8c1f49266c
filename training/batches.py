"""Draws training windows of both kinds of text, the same ones for the same seed.

Holds token arrays only; it never sees held-out text.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from training.tokenizer import Tokens

Batch = tuple[Tensor, Tensor]


class Batches:
    """Endless (inputs, targets), each (rows, n_ctx): `n_prose` rows of prose, the others of code.

    The last row is half of one kind and half of the other, so that the model meets a switch of topic.
    """

    def __init__(self, prose: Tokens, code: Tokens, n_ctx: int, n_rows: int, n_prose: int, seed: int) -> None:
        self.n_ctx = n_ctx
        self.n_rows = n_rows
        self.n_prose = n_prose
        self.prose = windows(prose, n_ctx + 1, np.random.default_rng([seed, 0]))
        self.code = windows(code, n_ctx + 1, np.random.default_rng([seed, 1]))
        self.n_drawn = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        rows = [next(self.prose) for _ in range(self.n_prose)]
        rows += [next(self.code) for _ in range(self.n_rows - self.n_prose)]
        rows[-1] = self.spliced(rows[0], rows[-1])
        self.n_drawn += 1
        tokens = torch.from_numpy(np.stack(rows).astype(np.int64))
        return tokens[:, :-1], tokens[:, 1:]

    def spliced(self, prose: Tokens, code: Tokens) -> Tokens:
        """Prose then code in even batches, code then prose in odd ones; half of row 0 is so seen twice."""
        half = self.n_ctx // 2
        first, second = (prose, code) if self.n_drawn % 2 == 0 else (code, prose)
        return np.concatenate([first[:half], second[half:]])

    def skip(self, n_batches: int) -> None:
        for _ in range(n_batches):
            next(self)


def windows(tokens: Tokens, length: int, rng: np.random.Generator) -> Iterator[Tokens]:
    """Endless windows of `length` tokens: every epoch starts at another offset and visits its windows in another order."""
    if len(tokens) < 2 * length:
        raise SystemExit(f"expected at least {2 * length} tokens of a kind, found {len(tokens)}. Give it more text.")
    while True:
        offset = int(rng.integers(length))
        for i in rng.permutation((len(tokens) - offset) // length):
            yield tokens[offset + i * length : offset + (i + 1) * length]
