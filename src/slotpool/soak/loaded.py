"""The model of a soak, pooled or plain: loaded with the same settings, with room for several sequences, and its contexts.

Chooses nothing of the pool: its options are passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp

from slotpool import engine, loading
from slotpool.errors import REFUSED, SlotpoolError
from slotpool.loading import PooledLlama
from slotpool.soak.driver import Driver
from slotpool.soak.facts import Settings
from slotpool.soak.requests import Texts, read_texts

_N_UBATCHES = 4
"""Ubatches in a decode, so that a prompt can be aborted between two."""


@contextmanager
def opened(path: Path, settings: Settings, pool: Mapping[str, Any]) -> Iterator[PooledLlama]:
    """The model for the length of a with block. Nothing is repacked: plain and pooled runs go through the same kernels."""
    with engine.context_defaults(n_seq_max=max(1, settings.n_parallel), kv_unified=True):
        llm = loading.load(
            path,
            **pool,
            repack=False,
            n_ctx=settings.n_ctx,
            n_batch=min(settings.n_ctx, _N_UBATCHES * settings.n_ubatch),
            n_ubatch=settings.n_ubatch,
            n_threads=settings.n_threads,
            n_threads_batch=settings.n_threads,
        )
    try:
        yield llm
    finally:
        llm.close()


def texts_of(llm: PooledLlama) -> Texts:
    """The bundled texts in the model's tokens."""
    return read_texts(lambda text: llm.tokenize(text, add_bos=False, special=False))


def first_driver(llm: PooledLlama) -> Driver:
    """The context that the model was loaded with."""
    return Driver(llm.ctx, llm.model, llm.n_batch)


@contextmanager
def second_driver(llm: PooledLlama) -> Iterator[Driver]:
    """One more context of the model, freed at the end of the block whatever is on its way then."""
    with engine.captured_log() as lines:
        context = llama_cpp.llama_init_from_model(llm.model, llm.context_params)
    if not context:
        raise SlotpoolError(f"expected a second context, found none: {'; '.join(lines[-2:]) or 'no reason given'}", exit_code=REFUSED)
    try:
        yield Driver(context, llm.model, llm.n_batch)
    finally:
        with engine.captured_log():
            llama_cpp.llama_free(context)
