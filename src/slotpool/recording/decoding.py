"""Runs a model over tokens with llama.cpp's own calls, so that every decode is exactly one ubatch and its routers are watched.

No pool and no llama_cpp.Llama: what is recorded is what the unmodified engine does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from slotpool import engine
from slotpool.errors import REFUSED, SlotpoolError, printable

Callback = Callable[[int, bool, object], bool]


class Runner:
    """A loaded model with one context and one sequence."""

    def __init__(self, model: Any, context: Any, n_ctx: int) -> None:
        self._model, self._context = model, context
        self._vocab = llama_cpp.llama_model_get_vocab(model)
        self.n_vocab = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self._batch = llama_cpp.llama_batch_init(n_ctx, 0, 1)
        self._n_past = 0
        self.n_ctx = n_ctx

    def tokenize(self, text: bytes) -> list[int]:
        """The ids of a text as it is, with a leading BOS where the model asks for one."""
        room = len(text) + 16
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self._vocab, text, len(text), ids, room, True, False)
        if count < 0:
            raise SlotpoolError(f"expected at most {room} tokens of {len(text)} bytes of text, found {-count}")
        return list(ids[:count])

    def forget(self) -> None:
        """The sequence begins again."""
        memory = llama_cpp.llama_get_memory(self._context)
        if memory:
            llama_cpp.llama_memory_clear(memory, True)
        self._n_past = 0

    @property
    def n_free(self) -> int:
        """Tokens that still fit the context."""
        return self.n_ctx - self._n_past

    def decode(self, tokens: Sequence[int], *, n_outputs: int) -> None:
        """One decode, one ubatch: at most as many tokens as an ubatch has. The last `n_outputs` of them have logits."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, self._n_past + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, i >= len(tokens) - n_outputs
        status = llama_cpp.llama_decode(self._context, batch)
        if status:
            raise SlotpoolError(f"the engine could not decode {len(tokens)} tokens after {self._n_past} (llama_decode gave {status})")
        self._n_past += len(tokens)

    def logits(self, index: int = -1) -> NDArray[np.float32]:
        """Logits [n_vocab] after a token of the last decode, by its place there, or -1 the last: a view, good until the next decode."""
        row = llama_cpp.llama_get_logits_ith(self._context, index)
        if not row:
            raise SlotpoolError(f"expected logits of token {index} of a decode, found none")
        return np.ctypeslib.as_array(row, (self.n_vocab,))

    def piece(self, token: int) -> bytes:
        """The bytes of a token of any length; of a control token its name."""
        room = 64
        while True:
            text = ctypes.create_string_buffer(room)
            count = llama_cpp.llama_token_to_piece(self._vocab, token, text, room, 0, True)
            if count >= 0:
                return text.raw[:count]
            room = -count

    def best_token(self) -> int | None:
        """The most likely next token; None where the model ends its text."""
        token = int(self.logits().argmax())
        return None if llama_cpp.llama_vocab_is_eog(self._vocab, token) else token

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)


@contextmanager
def running(path: Path, callback: Callback, n_ctx: int, n_ubatch: int, n_threads: int) -> Iterator[Runner]:
    """Loads the model at `path`, yields its Runner, frees everything. Raises SlotpoolError when it does not load."""
    model: Any = None
    context: Any = None
    # the engine holds no reference of its own
    held = llama_cpp.ggml_backend_sched_eval_callback(callback)
    try:
        with engine.captured_log() as lines:
            llama_cpp.llama_backend_init()
            model = _made(llama_cpp.llama_model_load_from_file(os.fsencode(path), llama_cpp.llama_model_default_params()), path, lines)
            params = _context_params(n_ctx, n_ubatch, n_threads)
            params.cb_eval = held
            context = _made(llama_cpp.llama_init_from_model(model, params), path, lines)
            runner = Runner(model, context, n_ctx)
        try:
            yield runner
        finally:
            runner.close()
    finally:
        with engine.captured_log():
            if context:
                llama_cpp.llama_free(context)
            if model:
                llama_cpp.llama_model_free(model)


def _made(handle: Any, path: Path, lines: Sequence[str]) -> Any:
    if not handle:
        reason = "; ".join(lines[-2:]) or "it gave no reason"
        raise SlotpoolError(f"the engine could not load the model: {reason}", where=printable(path), exit_code=REFUSED)
    return handle


def _context_params(n_ctx: int, n_ubatch: int, n_threads: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = params.n_ubatch = n_ubatch
    params.n_threads = params.n_threads_batch = n_threads
    return params
