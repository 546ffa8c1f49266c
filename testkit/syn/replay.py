"""A model that replays a recorded trace: greedy decoding walks through it event by event, on weights of any size.

How: token t is embedded as a large one-hot in dimension t, attention says nothing, experts are real but small beside it,
the router of a layer reads the dimension and ranks the recorded experts, and the output head turns dimension t into token t + 1.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .archs import moe_layers
from .router import embedding_sigma, router_matrix
from .spec import Spec, SynError
from .tensors import Known, Noise, Values, constant, matrix
from .write import write_with

LOUDNESS = 65536.0  # a token's one-hot, against about 1 that a layer adds


@dataclass(frozen=True)
class ReplayRouter:
    """Token t takes trace[t modulo its length]; trace is [n_tokens, number of layers with experts, k]."""

    spec: Spec
    trace: NDArray[np.int64]
    quiet_rows: int = 0
    silent_attention: bool = True
    float_embedding: bool = True

    def embedding(self) -> Noise | Known:
        return Known(self._embedding_rows)

    def _embedding_rows(self, first: int, last: int) -> Values:
        rows: Values = np.eye(last - first, self.spec.n_embd, first, dtype=np.float32)
        rows *= np.float32(LOUDNESS * self.spec.n_layer**0.5 * embedding_sigma(self.spec))
        return rows

    def matrix(self, layer: int) -> Noise | Known:
        ids = self.trace[np.arange(self.spec.n_vocab) % len(self.trace), moe_layers(self.spec).index(layer)]
        return matrix(router_matrix(self.spec, ids, 4 * self.spec.n_embd**-0.5))

    def bias(self, name: str) -> Known:
        return constant(0.0, self.spec.n_expert)

    def output(self) -> Noise | Known:
        return Known(self._output_rows)

    def _output_rows(self, first: int, last: int) -> Values:
        rows = np.zeros((last - first, self.spec.n_embd), np.float32)
        rows[np.arange(last - first), (np.arange(first, last) - 1) % self.spec.n_vocab] = 1.0
        return rows


def replay(trace: NDArray[Any], spec: Spec, path: str | os.PathLike[str]) -> Path:
    """Write a model that routes token t exactly as trace[t] says: integers [n_tokens, layers with experts, k], order kept.

    Greedy decoding from token 0 yields 1, 2, 3, ... and after the last token 0 again. The vocabulary is the larger of
    spec.n_vocab and the trace's length; where the trace is shorter it repeats (token t: trace[t % n_tokens]).
    Limit: every token needs a dimension, so the vocabulary is at most n_embd; cut a longer trace into several models.
    """
    spec = replace(spec, n_vocab=max(spec.n_vocab, len(trace)))
    _check(trace, spec)
    return write_with(spec, ReplayRouter(spec, trace.astype(np.int64)), path)


def _check(trace: NDArray[Any], spec: Spec) -> None:
    wanted = (len(moe_layers(spec)), spec.n_expert_used)
    if trace.ndim != 3 or trace.shape[1:] != wanted or not len(trace):
        raise SynError(f"expected a trace of shape (n_tokens, {wanted[0]}, {wanted[1]}), got {trace.shape}")
    if spec.n_vocab > spec.n_embd:
        raise SynError(f"replay needs a dimension per token: expected n_vocab <= n_embd ({spec.n_embd}), got {spec.n_vocab}. Cut the trace")
    if trace.min() < 0 or trace.max() >= spec.n_expert:
        raise SynError(f"expected ids from 0 to {spec.n_expert - 1}, got {trace.min()} to {trace.max()}")
    ordered = np.sort(trace, axis=2)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        raise SynError("expected distinct experts in every event of the trace, got the same expert twice in one")
