"""Runs a model file on plain llama.cpp (CPU) and sees its logits and its routing. The tests' witness; it judges nothing.

Routing is read in the engine's eval callback from the tensors named ffn_moe_topk-<layer>, so it is what really happened.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from testkit.engine_log import engine_log

TOPK = re.compile(rb"ffn_moe_topk-(\d+)$")
NE_OFFSET, NB_OFFSET = 16, 48  # of a ggml_tensor's ne and nb, four 64-bit words each


@dataclass(frozen=True)
class Event:
    """One routing: `ids` is [n_tokens, k]. grovemoe has two events per layer and ubatch; the engine divides the second's ids later."""

    layer: int
    ids: NDArray[np.int32]


class Session:
    """A loaded model with one context and one sequence; `events` grows with every decode."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.n_vocab = 0
        self._context: Any = None
        self._n_past = 0
        self._ggml = _ggml_functions()

    def decode(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Decode tokens behind those already there, in one call; logits [n_tokens, n_vocab]."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = int(token), self._n_past + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
        status = llama_cpp.llama_decode(self._context, batch)
        llama_cpp.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode of {len(tokens)} tokens: expected 0, got {status}")
        self._n_past += len(tokens)
        rows = [llama_cpp.llama_get_logits_ith(self._context, i) for i in range(len(tokens))]
        return np.stack([np.ctypeslib.as_array(row, (self.n_vocab,)).copy() for row in rows])

    def greedy(self, token: int, n_steps: int) -> list[int]:
        """The n_steps tokens that greedy decoding yields after `token`, one decode each."""
        tokens = [token]
        for _ in range(n_steps):
            tokens.append(int(self.decode(tokens[-1:])[0].argmax()))
        return tokens[1:]

    def ids(self, layer: int, of_passes: int = 1) -> NDArray[np.int32]:
        """All routing of a layer so far, [n_tokens, k]: the first of `of_passes` passes (2 in grovemoe) through each layer."""
        return np.concatenate([event.ids for event in self.events if event.layer == layer][::of_passes])

    def _seen(self, tensor: int, ask: bool, _user: int) -> bool:
        match = TOPK.match(self._ggml.ggml_get_name(tensor))
        if match and not ask:
            self.events.append(Event(int(match[1]), self._read_ids(tensor)))
        return match is not None

    def _read_ids(self, tensor: int) -> NDArray[np.int32]:
        """The ids are a strided view: k columns of a row of all experts."""
        k, n_tokens = (ctypes.c_int64 * 2).from_address(tensor + NE_OFFSET)
        _, stride = (ctypes.c_size_t * 2).from_address(tensor + NB_OFFSET)
        data = self._ggml.ggml_get_data(tensor)
        rows = [(ctypes.c_int32 * k).from_address(data + row * stride) for row in range(n_tokens)]
        return np.array(rows, np.int32).reshape(n_tokens, k)


@contextmanager
def observe(path: str | os.PathLike[str], n_ctx: int = 512, n_ubatch: int = 512, n_threads: int = 1) -> Iterator[Session]:
    """`with observe(path) as session`: load the model, yield its Session, free everything. RuntimeError when it does not load."""
    with engine_log(errors_only=True) as errors:
        session = Session()
        model = _loaded(llama_cpp.llama_model_load_from_file(os.fsencode(path), _model_params()), path, errors)
        try:
            params = _context_params(n_ctx, n_ubatch, n_threads)
            params.cb_eval = callback = llama_cpp.ggml_backend_sched_eval_callback(session._seen)
            session._context = _loaded(llama_cpp.llama_init_from_model(model, params), path, errors)
            session.n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
            yield session
            del callback  # the engine holds no reference of its own
        finally:
            llama_cpp.llama_free(session._context)
            llama_cpp.llama_model_free(model)


def _loaded(handle: Any, path: str | os.PathLike[str], errors: list[str]) -> Any:
    if not handle:
        raise RuntimeError(f"llama.cpp does not load {os.fspath(path)!r}: {'; '.join(errors[-2:])}")
    return handle


def _model_params() -> Any:
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    return params


def _context_params(n_ctx: int, n_ubatch: int, n_threads: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, n_ctx, n_ubatch
    params.n_threads = params.n_threads_batch = n_threads
    return params


def _ggml_functions() -> Any:
    """ggml as libllama itself loaded it: a second copy lies beside it in the wheel, and would know nothing."""
    library = llama_cpp.llama_cpp._lib
    library.ggml_get_name.argtypes = library.ggml_get_data.argtypes = [ctypes.c_void_p]
    library.ggml_get_name.restype, library.ggml_get_data.restype = ctypes.c_char_p, ctypes.c_void_p
    return library
