"""Perplexity in chunks, as llama-perplexity takes it: every chunk begins with an empty cache. Plain and pooled runs by the same calls."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slotpool.plan import Plan

from .devices import DeviceRun, chaos, seen
from .engine import Bits, Context, loaded, running
from .pooled import pooled
from .script import Batch, Forget, Setup


@dataclass(frozen=True)
class Chunk:
    """Perplexity over the second half of a chunk, and a digest of all its logits."""

    perplexity: float
    digest: str


def plain_chunks(path: Path, setup: Setup, chunks: Sequence[tuple[int, ...]]) -> list[Chunk]:
    """In the oracle's process. llama.cpp alone: what it offloads it offloads."""
    with loaded(path, setup) as model, running(model, setup) as context:
        return [_chunk(context, tokens) for tokens in chunks]


def pooled_chunks(
    path: Path, plan: Plan, setup: Setup, chunks: Sequence[tuple[int, ...]], decoded: Sequence[int] = ()
) -> tuple[list[Chunk], DeviceRun]:
    """In a process with devices. Before every chunk the tokens `decoded` are decoded one by one, so that they churn the pool."""
    with pooled(path, plan, setup) as model:
        chaos().reset()
        found = []
        for tokens in chunks:
            for token in decoded:
                model.first.decode(Batch((token,)))
            found.append(_chunk(model.first, tokens))
        return found, seen(model, [])


def _chunk(context: Context, tokens: tuple[int, ...]) -> Chunk:
    context.step(Forget())
    bits = context.decode(Batch(tokens))
    context.step(Forget())
    return Chunk(_perplexity(bits, tokens), hashlib.sha256(bits.tobytes()).hexdigest())


def _perplexity(bits: Bits, tokens: tuple[int, ...]) -> float:
    half = len(tokens) // 2
    logits = bits.view(np.float32)[half:-1].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(logits)), list(tokens[half + 1 :])]
    return float(np.exp(np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen)))
