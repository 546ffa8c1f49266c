"""One tensor of a model file: its name, shape, type, and a recipe for its bytes.

A recipe is small whatever the tensor's size; bytes come out in chunks (`chunks`), so nothing is ever held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from .blocks import Format, Pools, encode, row_bytes

Values = NDArray[np.float32]
ROWS_PER_CHUNK = 1024


@dataclass(frozen=True)
class Run:
    """`n_rows` rows of noise of standard deviation `sigma`, cut at `key`; sigma 0 gives zeros."""

    n_rows: int
    sigma: float = 0.0
    key: int = 0


@dataclass(frozen=True)
class Noise:
    """Rows made of runs, top to bottom."""

    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Known:
    """Rows of known values: make(first, last) gives rows first..last-1, shape [last - first, ne0]."""

    make: Callable[[int, int], Values]


@dataclass(frozen=True)
class Tensor:
    """`ne` is in ggml's order: ne[0] is the row length in elements."""

    name: str
    ne: tuple[int, ...]
    fmt: Format
    recipe: Noise | Known

    @property
    def n_rows(self) -> int:
        return prod(self.ne[1:])

    @property
    def nbytes(self) -> int:
        return self.n_rows * row_bytes(self.fmt, self.ne[0])

    def chunks(self, pools: Pools) -> Iterator[memoryview]:
        """The tensor's bytes in order."""
        if isinstance(self.recipe, Known):
            return self._known_chunks(self.recipe)
        return self._noise_chunks(self.recipe, pools)

    def _known_chunks(self, known: Known) -> Iterator[memoryview]:
        for first in range(0, self.n_rows, ROWS_PER_CHUNK):
            rows = known.make(first, min(first + ROWS_PER_CHUNK, self.n_rows))
            yield encode(self.fmt, rows).view(np.uint8).reshape(-1).data

    def _noise_chunks(self, noise: Noise, pools: Pools) -> Iterator[memoryview]:
        blocks_per_row = self.ne[0] // self.fmt.elements
        for run in noise.runs:
            n_blocks = run.n_rows * blocks_per_row
            if run.sigma:
                yield from pools.get(self.fmt, run.sigma).cut(run.key, n_blocks)
            else:
                yield memoryview(bytes(n_blocks * self.fmt.nbytes))


def constant(value: float, n: int) -> Known:
    """n times the same value, as one row."""
    return Known(lambda first, last: np.full((last - first, n), value, np.float32))


def matrix(values: Values) -> Known:
    """A small matrix, given whole."""
    return Known(lambda first, last: values[first:last])
