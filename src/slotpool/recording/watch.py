"""Watches the routers while a graph is computed: llama.cpp's evaluation callback, turned into events.

llama.cpp has one builder for expert layers (build_moe_ffn), whatever the architecture. The node `ffn_moe_weights-<layer>` takes the
router's probabilities at the experts that are used; its second source are the ids, after everything that an architecture does to them:
the best k, a table (deepseek4's first layers), the ids of grovemoe's second pass. So the ids are read there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slotpool.errors import SlotpoolError
from slotpool.recording import nodes
from slotpool.trace import PASSES, Event

# in the order of the graph: the last one that a layer has is what the experts' outputs are multiplied by
_WEIGHTS = re.compile(rb"ffn_moe_weights(_softmax|_norm|_scaled)?-(\d+)")
_RANKING = re.compile(rb"ffn_moe_argsort-(\d+)")

Experts = Mapping[tuple[int, str], int]
"""Number of experts of each (layer, pass) of a model."""


@dataclass
class _Seen:
    """One router in the ubatch that is being computed."""

    layer: int
    pass_: str
    ids: NDArray[np.int32]
    weights: NDArray[np.float32]
    ranking: NDArray[np.int32] | None


@dataclass
class RouterWatch:
    """An evaluation callback. `begin` an ubatch, let the engine compute it, `end` it: the events are added to `add` then.

    An exception inside the callback would be lost in C: it is kept, and `end` raises it.
    """

    experts: Experts
    add: Callable[[Event], None]
    has_weights: bool = True
    has_ranking: bool = False
    n_ubatches: int = 0
    _seen: list[_Seen] = field(default_factory=list)
    _ranking: dict[int, NDArray[np.int32]] = field(default_factory=dict)
    _failure: BaseException | None = None

    def __call__(self, address: int, is_question: bool, _user: object = None) -> bool:
        """Whether the engine is to stop after this node and come again (a question), or to go on."""
        try:
            name = nodes.name_of(address)
            if not name.startswith(b"ffn_moe_"):
                return False
            return self._is_wanted(name) if is_question else self._take(name, address)
        except BaseException as error:
            self._failure = self._failure or error
            return not is_question

    def _is_wanted(self, name: bytes) -> bool:
        match = _WEIGHTS.fullmatch(name)
        if match is not None:
            return match[1] is None or self.has_weights
        return self.has_ranking and _RANKING.fullmatch(name) is not None

    def _take(self, name: bytes, address: int) -> bool:
        ranking = _RANKING.fullmatch(name)
        if ranking is not None:
            self._ranking[int(ranking[1])] = nodes.rows_of(address)
        match = _WEIGHTS.fullmatch(name)
        if match is not None and match[1] is None:
            self._begin_router(int(match[2]), address)
        elif match is not None:
            self._router(int(match[2])).weights = nodes.floats_of(address)
        return True

    def _begin_router(self, layer: int, address: int) -> None:
        n_before = sum(seen.layer == layer for seen in self._seen)
        if n_before == len(PASSES) or (layer, PASSES[n_before]) not in self.experts:
            raise SlotpoolError(f"expected at most {n_before} routers in layer {layer} of the graph, found {n_before + 1}")
        ranking = self._ranking.pop(layer, None)
        pass_ = PASSES[n_before]
        is_of_pass = ranking is not None and ranking.shape[1] == self.experts[layer, pass_]
        ids = nodes.rows_of(nodes.source(address, 1))
        self._seen.append(_Seen(layer, pass_, ids, nodes.floats_of(address), ranking if is_of_pass else None))

    def _router(self, layer: int) -> _Seen:
        return next(seen for seen in reversed(self._seen) if seen.layer == layer)

    def begin(self) -> None:
        """The next nodes are those of another ubatch."""
        self._seen.clear()
        self._ranking.clear()
        self._failure = None

    def end(self, n_tokens: int, phase: int) -> None:
        """The ubatch of `n_tokens` tokens has been computed: adds its events. Raises what went wrong inside the callback."""
        if self._failure is not None:
            raise self._failure
        for seen in self._seen:
            if len(seen.ids):  # the last layer of an ubatch without outputs has no rows: the experts are not asked
                self.add(self._event(seen, n_tokens, phase))
        self.n_ubatches += 1

    def _event(self, seen: _Seen, n_tokens: int, phase: int) -> Event:
        return Event(
            layer=seen.layer,
            pass_=seen.pass_,
            n_expert=self.experts[seen.layer, seen.pass_],
            ubatch=self.n_ubatches,
            phase=phase,
            n_tokens=max(n_tokens, len(seen.ids)),
            ids=seen.ids,
            weights=seen.weights.reshape(seen.ids.shape) if self.has_weights else None,
            ranking=seen.ranking,
        )
