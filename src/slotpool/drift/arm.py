"""One arm in its own process: a model, plain or with the pool, that decodes what it is told and gives its logits back.

The same calls for every arm; what differs is how the model is loaded. Compares nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from slotpool import engine, loading
from slotpool.drift.facts import BLOCK, CHUNK, ArmSpec, Chunk, Counts, Hello
from slotpool.drift.numbers import Logits, log_softmax
from slotpool.errors import REFUSED, SlotpoolError
from slotpool.loading import PooledLlama
from slotpool.native import Session
from slotpool.recording.decoding import Runner


class Arm:
    """A loaded arm. Every public method is a request of `process`."""

    def __init__(self, spec: ArmSpec) -> None:
        for library in spec.backends:
            engine.load_backend(library)
        self._llm = _loaded(spec)
        model, context = self._llm._model.model, self._llm._ctx.ctx
        self._runner = Runner(model, context, spec.n_ctx)
        self._n_steps = self._n_evicting = self._n_evicted = 0

    def hello(self) -> Hello:
        """Who this is."""
        devices = tuple((one.name, one.type, one.free_bytes) for one in engine.devices())
        pooled_on = tuple(dict.fromkeys(group.device for group in self._llm.slotpool_plan.groups))
        return Hello(os.getpid(), engine.name(), self._runner.n_vocab, devices, pooled_on)

    def has_core(self) -> bool:
        """Whether slotpool's core is in this process, used or not."""
        return engine.is_core_mapped() or engine.is_registered()

    def tokenize(self, text: bytes) -> list[int]:
        """Ids of a text as it is."""
        return self._runner.tokenize(text)

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        return self._runner.piece(token)

    def forget(self) -> None:
        """The sequence begins again; the pool keeps what it holds."""
        self._runner.forget()

    def decode(self, tokens: Sequence[int]) -> Logits:
        """Logits [n, n_vocab] of up to BLOCK tokens, each a decode of its own."""
        rows = np.empty((len(tokens), self._runner.n_vocab), np.float32)
        for row, token in zip(rows, tokens, strict=True):
            self._decode([token], 1)
            row[:] = self._runner.logits()
            self._count_step()
        return rows

    def chunk(self, tokens: Sequence[int]) -> Chunk:
        """The tokens as one batch from an empty context, as llama-perplexity does it: what its second half predicts is counted."""
        self.forget()
        half = len(tokens) // 2
        self._decode(tokens, len(tokens) - half)
        bits, nll = hashlib.blake2b(digest_size=16), list[float]()
        for first in range(half, len(tokens), BLOCK):
            rows = np.stack([self._runner.logits(index) for index in range(first, min(first + BLOCK, len(tokens)))])
            bits.update(rows.tobytes())
            nll += [-float(logs[token]) for logs, token in zip(log_softmax(rows), tokens[first + 1 :], strict=False)]
        return Chunk(tuple(nll), bits.hexdigest())

    def counts(self) -> Counts:
        """What the pool did so far; all 0 without one."""
        return Counts(self.stats()["lookups"], self.stats()["evicted"], self._n_steps, self._n_evicting)

    def stats(self) -> Mapping[str, Any]:
        """The stats document."""
        return loading.read_stats(self._llm)

    def damage(self, kind: str) -> str:
        """Damages the pool on purpose, one layer of it; says what was done. SlotpoolError when no slot is in use."""
        session = self._session()
        harm: Callable[[int], int] = session.flip_bit if kind == "bit" else lambda group: session.corrupt(group, swap_slots=True)
        for index, group in enumerate(self._llm.slotpool_plan.groups):
            n_touched = harm(index)
            if n_touched:
                what = f"one bit of {group.tensors[0].name} in one slot" if kind == "bit" else f"the slot map, {n_touched} slots of it"
                return f"layer {group.layer}: {what}"
        raise SlotpoolError("expected slots in use to damage, found none", where="--damage", exit_code=REFUSED)

    def close(self) -> None:
        """Frees everything."""
        self._runner.close()
        self._llm.close()

    def _decode(self, tokens: Sequence[int], n_outputs: int) -> None:
        session = self._llm.slotpool_session
        if session:
            session.take_failure()
        try:
            self._runner.decode(tokens, n_outputs=n_outputs)
        except SlotpoolError as error:
            failure = session.take_failure() if session else ""
            raise SlotpoolError(failure or error.message, exit_code=REFUSED) from error

    def _count_step(self) -> None:
        session = self._llm.slotpool_session
        if session is None:
            return
        evicted = sum(group.evicted for group in session.counts())
        self._n_steps += 1
        self._n_evicting += evicted > self._n_evicted
        self._n_evicted = evicted

    def _session(self) -> Session:
        session = self._llm.slotpool_session
        if session is None:
            raise SlotpoolError("expected an arm with a pool, found a plain one")
        return session


def _loaded(spec: ArmSpec) -> PooledLlama:
    options: dict[str, Any] = {
        "n_ctx": spec.n_ctx,
        "n_batch": min(CHUNK, spec.n_ctx),
        "n_ubatch": min(CHUNK, spec.n_ctx),
        "n_threads": spec.n_threads,
        "n_threads_batch": spec.n_threads,
        "n_gpu_layers": spec.n_gpu_layers,
    }
    if spec.tensor_split:
        options["tensor_split"] = list(spec.tensor_split)
    # what is on the CPU stays there: the engine would give large batches to a GPU that it sees
    with engine.devices_hidden() if spec.n_gpu_layers == 0 else nullcontext():
        return _plain(spec, options) if spec.pool is None else _pooled(spec, spec.pool, options)


def _pooled(spec: ArmSpec, pool: Mapping[str, Any], options: dict[str, Any]) -> PooledLlama:
    return loading.load(spec.model, repack=False, **{**pool, "rpc": spec.rpc}, **options)


def _plain(spec: ArmSpec, options: dict[str, Any]) -> PooledLlama:
    engine.add_rpc_servers(spec.rpc)
    llm = loading.load_plain(spec.model, **options)
    if engine.is_core_mapped() or engine.is_registered():
        raise SlotpoolError("expected plain llama.cpp without slotpool's core, found the core in its process", exit_code=REFUSED)
    return llm
