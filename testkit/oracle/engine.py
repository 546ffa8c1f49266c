"""llama.cpp's low-level interface in the few calls that a test needs: a model, a context, tokens in, bits of logits out.

Knows no pool and no plan: the plain and the pooled run are made of the same calls, which is what makes them comparable.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from slotpool import engine as installed
from testkit.engine_log import engine_log

from .script import LOAD_MODES, Batch, Forget, Reserve, Setup, Step

Bits = NDArray[np.uint32]
"""Logits as bit patterns, [n_outputs, n_vocab]: equal means the same to the last bit."""
Watch = Callable[[int, bool], bool]
"""An eval callback: (address of the node, whether the engine only asks) -> whether to be called for it, or to go on."""

_BUFFER = re.compile(r"load_tensors: +(\S+) model buffer size")


class EngineError(RuntimeError):
    """The engine refused: what was asked and its own last words."""


class Model:
    """A loaded model file. `buffers` are the buffer types that its weights went to, by ggml's names."""

    def __init__(self, path: Path, setup: Setup) -> None:
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = setup.n_gpu_layers
        if setup.tensor_split:
            shares = (ctypes.c_float * llama_cpp.llama_max_devices())(*setup.tensor_split)
            params.tensor_split = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))
        overrides = _overrides(setup)
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p) if setup.placed else None
        params.load_mode = LOAD_MODES[setup.load_mode]
        params.use_extra_bufts = setup.repack
        with engine_log() as log:
            self.handle: Any = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if not self.handle:
            raise EngineError(f"expected {path} to load, got: {''.join(log[-3:])}")
        self.buffers = frozenset(_BUFFER.findall("".join(log)))
        self.n_vocab = int(llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.handle)))
        self.n_embd = int(llama_cpp.llama_model_n_embd(self.handle))

    def close(self) -> None:
        if self.handle:
            with engine_log():
                llama_cpp.llama_model_free(self.handle)
            self.handle = None


class Context:
    """A context of a model. `log` holds what the engine said while it was made, and with `Setup.keeps_log` while it was used.

    The engine has one log for all: contexts that keep theirs cannot decode at the same time.
    """

    def __init__(self, model: Model, setup: Setup, watch: Watch | None = None) -> None:
        self._model = model
        self._n_past: dict[int, int] = {}
        self.log: list[str] = []
        self._keeps_log = setup.keeps_log
        self._callback = _eval_callback(setup, watch)  # the engine holds no reference of its own
        with engine_log(self.log), _switches(setup):
            self.handle: Any = llama_cpp.llama_init_from_model(model.handle, self._params(setup))
        if not self.handle:
            raise EngineError(f"expected a context, got: {''.join(self.log[-3:])}")

    def _params(self, setup: Setup) -> Any:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = setup.n_ctx
        params.n_ubatch, params.n_seq_max, params.kv_unified = setup.n_ubatch, setup.n_seq, setup.kv_unified
        params.n_threads = params.n_threads_batch = setup.n_threads
        if self._callback:
            params.cb_eval = self._callback
        return params

    def run(self, steps: Sequence[Step]) -> list[Bits]:
        """Takes the steps; the bits of one array per batch, in order."""
        return [bits for bits in (self.step(step) for step in steps) if bits is not None]

    def step(self, step: Step) -> Bits | None:
        """Takes one step; bits for a batch, None for anything else."""
        if isinstance(step, Batch):
            return self.decode(step)
        if isinstance(step, Forget):
            self._n_past.clear()
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.handle), True)
        if isinstance(step, Reserve):
            llama_cpp.llama_set_adapter_cvec(self.handle, None, 0, self._model.n_embd, 0, 0)
        return None

    def decode(self, batch: Batch) -> Bits:
        """One llama_decode; bits [n_outputs, n_vocab]. EngineError when it fails; the sequence has not moved then."""
        made = self._made(batch)
        with engine_log(self.log) if self._keeps_log else nullcontext():
            status = llama_cpp.llama_decode(self.handle, made)
        llama_cpp.llama_batch_free(made)
        if status:
            raise EngineError(f"expected llama_decode of {len(batch.tokens)} tokens to return 0, got {status}")
        for seq in batch.sequence:
            self._n_past[seq] = self._n_past.get(seq, 0) + 1
        rows = [self._logits(i) for i in range(len(batch.tokens)) if batch.has_output(i)]
        return np.stack(rows) if rows else np.empty((0, self._model.n_vocab), np.uint32)

    def greedy(self, prompt: Sequence[int], n_tokens: int) -> list[int]:
        """The `n_tokens` most likely tokens after a prompt, one decode each."""
        tokens: list[int] = []
        bits = self.decode(Batch(tuple(prompt), outputs="last"))
        while len(tokens) < n_tokens:
            tokens.append(int(bits[-1].view(np.float32).argmax()))
            bits = self.decode(Batch((tokens[-1],)))
        return tokens

    @property
    def n_reused(self) -> int:
        """How often the engine took a graph again instead of building it."""
        return int(llama_cpp.llama_perf_context(self.handle).n_reused)

    @property
    def n_reserves(self) -> int:
        """How often the engine reserved the worst graphs, as its log says."""
        return sum("reserving ..." in line for line in self.log)

    def close(self) -> None:
        if self.handle:
            with engine_log(self.log):
                llama_cpp.llama_free(self.handle)
            self.handle = None

    def _made(self, batch: Batch) -> Any:
        made = llama_cpp.llama_batch_init(len(batch.tokens), 0, 1)
        made.n_tokens = len(batch.tokens)
        n_past = dict(self._n_past)
        for i, (token, seq) in enumerate(zip(batch.tokens, batch.sequence, strict=True)):
            made.token[i], made.pos[i], made.logits[i] = token, n_past.get(seq, 0), batch.has_output(i)
            made.n_seq_id[i], made.seq_id[i][0] = 1, seq
            n_past[seq] = n_past.get(seq, 0) + 1
        return made

    def _logits(self, index: int) -> Bits:
        row = llama_cpp.llama_get_logits_ith(self.handle, index)
        bits: Bits = np.ctypeslib.as_array(row, (self._model.n_vocab,)).view(np.uint32).copy()
        return bits


@contextmanager
def loaded(path: Path, setup: Setup) -> Iterator[Model]:
    """A model for the length of a with block."""
    model = Model(path, setup)
    try:
        yield model
    finally:
        model.close()


@contextmanager
def running(model: Model, setup: Setup, watch: Watch | None = None) -> Iterator[Context]:
    """A context for the length of a with block."""
    context = Context(model, setup, watch)
    try:
        yield context
    finally:
        context.close()


class _Override(ctypes.Structure):
    """A llama_model_tensor_buft_override: a pattern and the buffer type of what it matches; the last has none."""

    _fields_ = (("pattern", ctypes.c_char_p), ("type", ctypes.c_void_p))


def _overrides(setup: Setup) -> Any:
    made = (_Override * (len(setup.placed) + 1))()
    for override, (pattern, device) in zip(made, setup.placed, strict=False):
        override.pattern, override.type = pattern.encode(), _buffer_type(device)
    return made


def _buffer_type(device: str) -> int:
    by_name = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(installed.function_address("ggml_backend_dev_by_name"))
    type_of = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(installed.function_address("ggml_backend_dev_buffer_type"))
    found = by_name(device.encode())
    if not found:
        raise EngineError(f"expected a device of ggml's names, got {device!r}")
    return int(type_of(found))


def _eval_callback(setup: Setup, watch: Watch | None) -> Any:
    if setup.one_node_at_a_time:
        return llama_cpp.ggml_backend_sched_eval_callback(lambda node, ask, _user: watch is None or ask or watch(node, ask))
    return watch and llama_cpp.ggml_backend_sched_eval_callback(lambda node, ask, _user: watch(node, ask))


@contextmanager
def _switches(setup: Setup) -> Iterator[None]:
    """The engine's switches that exist as environment variables only; it reads them when a context is made."""
    wanted = {"LLAMA_GRAPH_REUSE_DISABLE": str(int(not setup.reuse_graphs)), "GGML_SCHED_DEBUG": "2" if setup.keeps_log else "0"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
