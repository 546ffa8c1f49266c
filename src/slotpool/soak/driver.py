"""One llama context, driven by llama.cpp's own calls: several sequences in a batch, aborts at a chosen point, logits by name.

Knows no pool: the session and plain llama.cpp beside it are made of the same calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import llama_cpp
import numpy as np

from slotpool.errors import REFUSED, SlotpoolError
from slotpool.soak.facts import Output

_ABORTED = 2


class AbortedError(Exception):
    """The request was aborted, as was asked for."""


class Driver:
    """A context of a model. `n_batch` is the most tokens of one decode; what is more is decoded in pieces."""

    def __init__(self, context: Any, model: Any, n_batch: int) -> None:
        self._context = context
        self._n_vocab = int(llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model)))
        self._n_batch = n_batch
        self._n_past: dict[int, int] = {}
        self.n_questions = 0

    def forget(self) -> None:
        """All sequences begin again, in an empty cache: the same request then finds the same cells."""
        # an aborted request may have left a device at work on the cache
        llama_cpp.llama_synchronize(self._context)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        self._n_past.clear()

    def n_kept(self, seq: int) -> int:
        """Tokens of a sequence that the engine's cache holds."""
        return int(llama_cpp.llama_memory_seq_pos_max(llama_cpp.llama_get_memory(self._context), seq)) + 1

    def decode(self, tokens: Sequence[tuple[int, int]], has_output: Sequence[bool]) -> list[Output]:
        """(token, sequence) pairs go on where their sequences ended; the outputs asked for, in order.

        Raises AbortedError within `aborted_after`, and SlotpoolError when the engine cannot.
        """
        found: list[Output] = []
        for at in range(0, len(tokens), self._n_batch):
            found += self._decode(tokens[at : at + self._n_batch], has_output[at : at + self._n_batch])
        return found

    def _decode(self, tokens: Sequence[tuple[int, int]], has_output: Sequence[bool]) -> list[Output]:
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        try:
            n_past = self._fill(batch, tokens, has_output)
            status = llama_cpp.llama_decode(self._context, batch)
        finally:
            llama_cpp.llama_batch_free(batch)
        if status == _ABORTED:
            raise AbortedError
        if status:
            raise SlotpoolError(f"expected llama_decode of {len(tokens)} tokens to succeed, found {status}", exit_code=REFUSED)
        self._n_past = n_past
        return [self._output(index) for index, is_wanted in enumerate(has_output) if is_wanted]

    def _fill(self, batch: Any, tokens: Sequence[tuple[int, int]], has_output: Sequence[bool]) -> dict[int, int]:
        n_past = dict(self._n_past)
        batch.n_tokens = len(tokens)
        for i, (token, seq) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, n_past.get(seq, 0), has_output[i]
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, seq
            n_past[seq] = n_past.get(seq, 0) + 1
        return n_past

    def _output(self, index: int) -> Output:
        row = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, index), (self._n_vocab,))
        token = int(row.argmax())
        second = np.delete(row, token).max() if self._n_vocab > 1 else row[token]
        name = blake2b(row.tobytes(), digest_size=8).hexdigest()
        return Output(token, name, float(row[token]), float(row[token] - second))

    @contextmanager
    def aborted_after(self, n_questions: int | None) -> Iterator[None]:
        """Within it the engine is told to stop at its so many-th question; None only counts them, in `n_questions`."""
        self.n_questions = 0
        interrupts: list[KeyboardInterrupt] = []

        def is_over(_: object) -> bool:
            try:
                self.n_questions += 1
            except KeyboardInterrupt as interrupt:  # raised through C it would be lost
                interrupts.append(interrupt)
            return bool(interrupts) or self.n_questions == n_questions

        callback = llama_cpp.ggml_abort_callback(is_over)
        llama_cpp.llama_set_abort_callback(self._context, callback, None)
        try:
            yield
        finally:
            llama_cpp.llama_set_abort_callback(self._context, llama_cpp.ggml_abort_callback(), None)
            if interrupts:
                raise interrupts[0]
