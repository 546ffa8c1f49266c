"""The arithmetic of drift: log-probabilities, Kullback-Leibler divergence, perplexity with its error, and their sums over tokens.

Pure: arrays in, numbers out. Logits are float32 [n, n_vocab] as the engine gives them; everything computed from them is float64.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Logs = NDArray[np.float64]


def log_softmax(logits: Logits) -> Logs:
    """Log-probabilities, nats, of rows [n, n_vocab]: x - max - log(sum(exp(x - max))). A row with a NaN or +infinity becomes NaN."""
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        shifted = wide - wide.max(axis=1, keepdims=True)
        logs: Logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


def divergences(reference: Logs, other: Logs) -> Logs:
    """KL(P || Q) of each row, nats, P the reference: sum over the vocabulary of p (log p - log q).

    Source: Kullback and Leibler, "On Information and Sufficiency" (1951), in the direction of llama-perplexity's --kl-divergence. Terms
    with p = 0 are 0. Rounding can make a sum of equal distributions -1e-17: never below 0. Infinite where q = 0 and p is not.
    """
    with np.errstate(invalid="ignore"):
        p = np.exp(reference)
        terms = np.where(p == 0, 0.0, p * (reference - other))
    sums = terms.sum(axis=1)
    return np.where(sums < 0, 0.0, sums)


def same_rows(left: Logits, right: Logits) -> NDArray[np.bool_]:
    """Which rows are equal bit by bit: 0 and -0 differ, a NaN equals itself."""
    rows: NDArray[np.bool_] = (left.view(np.uint32) == right.view(np.uint32)).all(axis=1)
    return rows


@dataclass(frozen=True)
class Kld:
    """Divergences of tokens, nats; all 0 where there were none."""

    mean: float
    median: float
    p99: float
    max: float


@dataclass(frozen=True)
class Ppl:
    """Perplexity and its standard error; None where nothing was predicted (error: fewer than two tokens)."""

    ppl: float | None
    error: float | None


@dataclass
class Perplexity:
    """Sums of negative log-likelihoods, nats, of next tokens."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, nll: Logs) -> None:
        """Takes what a block of tokens cost."""
        self.n += len(nll)
        self.total += float(nll.sum())
        self.squares += float((nll * nll).sum())

    def result(self) -> Ppl:
        """exp of the mean, and by the delta method exp(mean) times the standard error of the mean, as llama-perplexity says it."""
        if not self.n or not math.isfinite(self.total):
            return Ppl(None, None)
        mean = self.total / self.n
        ppl = _exp(mean)
        if self.n < 2 or ppl is None:
            return Ppl(ppl, None)
        variance = max(self.squares / self.n - mean * mean, 0.0) / (self.n - 1)
        return Ppl(ppl, ppl * math.sqrt(variance))


def _exp(value: float) -> float | None:
    try:
        return math.exp(value)
    except OverflowError:
        return None


@dataclass
class Tally:
    """What differs between a reference and another arm over tokens, in one float64 a token.

    `first` is the number of the first token, counted in the order of `add`, whose logits are not equal bit by bit. A token whose
    divergence is not a finite number (NaN, q = 0) is counted in `n_not_finite` and not in the divergences.
    """

    klds: array[float] = field(default_factory=lambda: array("d"))
    n: int = 0
    n_different: int = 0
    n_not_finite: int = 0
    top1_flips: int = 0
    largest: float = 0.0
    first: int | None = None

    def add(self, reference: Logits, other: Logits, reference_logs: Logs, other_logs: Logs) -> None:
        """Takes a block of rows [n, n_vocab] of both arms, with their log-probabilities."""
        is_same = same_rows(reference, other)
        if not is_same.all():
            self._note(is_same)
            with np.errstate(invalid="ignore"):
                gap = np.abs(reference.astype(np.float64) - other.astype(np.float64))
            self.largest = max(self.largest, float(np.where(np.isfinite(gap), gap, 0.0).max()))
        self.top1_flips += int((reference.argmax(axis=1) != other.argmax(axis=1)).sum())
        klds = np.where(is_same & np.isfinite(reference_logs).any(axis=1), 0.0, divergences(reference_logs, other_logs))
        is_finite = np.isfinite(klds)
        self.n_not_finite += int((~is_finite).sum())
        self.klds.extend(klds[is_finite].tolist())
        self.n += len(reference)

    def _note(self, is_same: NDArray[np.bool_]) -> None:
        if self.first is None:
            self.first = self.n + int((~is_same).argmax())
        self.n_different += int((~is_same).sum())

    @property
    def is_exact(self) -> bool:
        """Every token's logits equal bit by bit, and all of them numbers."""
        return not self.n_different and not self.n_not_finite

    def kld(self) -> Kld:
        """Mean, median, p99 (linear between ranks) and maximum."""
        if not self.klds:
            return Kld(0.0, 0.0, 0.0, 0.0)
        values = np.frombuffer(self.klds, np.float64)
        median, p99 = np.quantile(values, (0.5, 0.99))
        return Kld(float(values.mean()), float(median), float(p99), float(values.max()))


def merged(tallies: Sequence[Tally]) -> Tally:
    """One tally of several; `first` then counts over all of them."""
    whole = Tally()
    for tally in tallies:
        if whole.first is None and tally.first is not None:
            whole.first = whole.n + tally.first
        whole.klds.extend(tally.klds)
        whole.n += tally.n
        whole.n_different += tally.n_different
        whole.n_not_finite += tally.n_not_finite
        whole.top1_flips += tally.top1_flips
        whole.largest = max(whole.largest, tally.largest)
    return whole
