"""The one comparison of the matrix: logits of two runs, bit by bit, and none of them may be NaN or infinite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .engine import Bits


class BitsDifferError(AssertionError):
    """Two runs differ: in which batch, how many values, and the first of them."""


def assert_same_bits(got: Sequence[Bits], plain: Sequence[Bits]) -> None:
    """Raises BitsDifferError unless every logit of every batch is finite and the same to the last bit."""
    if [bits.shape for bits in got] != [bits.shape for bits in plain]:
        raise BitsDifferError(f"expected shapes {[bits.shape for bits in plain]}, got {[bits.shape for bits in got]}")
    for batch, (mine, theirs) in enumerate(zip(got, plain, strict=True)):
        _check_finite(batch, "got", mine)
        _check_finite(batch, "plain", theirs)
        differs = mine != theirs
        if differs.any():
            row, column = (int(at[0]) for at in np.nonzero(differs))
            pair = f"{theirs[row, column]:#010x} (plain), got {mine[row, column]:#010x}"
            raise BitsDifferError(
                f"batch {batch}: {differs.sum()} of {differs.size} logits differ; row {row}, token {column}: expected {pair}"
            )


def _check_finite(batch: int, who: str, bits: Bits) -> None:
    n_bad = int((~np.isfinite(bits.view(np.float32))).sum())
    if n_bad:
        raise BitsDifferError(f"batch {batch}: expected finite logits, got {n_bad} of {bits.size} that are NaN or infinite ({who})")
