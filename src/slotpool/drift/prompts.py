"""Chunked perplexity: the same prompts before and after decoding has filled the pool, which must not change a bit of them.

Cuts chunks and compares them; the arms compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from slotpool.drift.facts import CHUNK, CPU, DEVICE, POOL, Chunk, Prompts
from slotpool.drift.numbers import Perplexity, Ppl

_LEAST = 4
"""Tokens of the shortest chunk: its second half predicts one."""


def chunks_of(texts: Sequence[Sequence[int]], n_chunks: int, n_ctx: int) -> list[list[int]]:
    """Up to `n_chunks` chunks of at most 512 tokens, of the texts in turn; the last of a text may be shorter."""
    size = min(CHUNK, n_ctx)
    by_text = [[list(ids[first : first + size]) for first in range(0, len(ids), size)] for ids in texts]
    longest = max(map(len, by_text), default=0)
    in_turn = [chunks[number] for number in range(longest) for chunks in by_text if number < len(chunks)]
    return [chunk for chunk in in_turn if len(chunk) >= _LEAST][:n_chunks]


def judged_prompts(before: Mapping[str, Sequence[Chunk]], after: Sequence[Chunk], sizes: Sequence[int]) -> Prompts | None:
    """What chunks of `sizes` tokens say: of every arm, and of the pool's `after` it was filled. None where there were none."""
    if not sizes:
        return None
    pairs = list(zip(before[POOL], after, strict=True))
    plain = before[DEVICE] if DEVICE in before else before[CPU]
    return Prompts(
        n_chunks=len(sizes),
        n_tokens=sum(sizes),
        before={arm: _perplexity(chunks) for arm, chunks in before.items()},
        is_same_after=all(first == second for first, second in pairs),
        is_plain=all(ours == theirs for ours, theirs in zip(before[POOL], plain, strict=True)),
        first_different_chunk=next((number for number, (first, second) in enumerate(pairs) if first != second), None),
    )


def _perplexity(chunks: Sequence[Chunk]) -> Ppl:
    sums = Perplexity()
    for chunk in chunks:
        sums.add(np.array(chunk.nll))
    return sums.result()
