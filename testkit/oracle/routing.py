"""Which experts every ubatch asked for, seen at the expert matmuls themselves while a model runs.

Reads the ids from the node that uses them, so it is what really happened, whatever the architecture does between router and
experts (grovemoe's second pass has ids of its own). Changes nothing.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slotpool import engine as installed

Ids = NDArray[np.int32]
"""Expert ids of one event, [n_rows, k]: rows of the last layer are the ubatch's output rows only."""
Place = tuple[int, str]
"""A layer and its pass, `exps` or `chexps`: the expert tensors that share a routing."""

# every layer with experts ends with its down matmul, and has one of each pass
_DOWN = re.compile(rb"blk\.(\d+)\.ffn_down_((?:ch)?exps)\.weight")


@dataclass(frozen=True)
class Ubatch:
    """One ubatch: its number of tokens and the ids of each (layer, pass), in the order they were computed."""

    n_tokens: int
    ids: Mapping[Place, Ids]


class _Tensor(ctypes.Structure):
    """A ggml_tensor, as far as it is read here; `core/abi/ggml_abi.h` states the layout and `abi::verify` checks it."""

    _fields_ = (
        ("type", ctypes.c_int32),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int32),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
    )


@dataclass
class Observer:
    """An eval callback (`engine.Watch`) that keeps the routing; `ubatches` says what it saw so far."""

    _seen: list[dict[Place, Ids]] = field(default_factory=list)

    def __call__(self, node: int, ask: bool) -> bool:
        place = _place_of(_Tensor.from_address(node))
        if place is None or ask:
            return place is not None
        if not self._seen or place in self._seen[-1]:
            self._seen.append({})
        self._seen[-1][place] = _read_ids(_Tensor.from_address(node).src[2])
        return True

    def ubatches(self) -> list[Ubatch]:
        """What was seen; an ubatch has as many tokens as the largest of its events has rows."""
        return [Ubatch(max(len(ids) for ids in seen.values()), seen) for seen in self._seen]


def _place_of(node: _Tensor) -> Place | None:
    if not node.src[0] or not node.src[2]:
        return None
    match = _DOWN.fullmatch(_Tensor.from_address(node.src[0]).name)
    return (int(match[1]), match[2].decode()) if match else None


def _read_ids(address: int) -> Ids:
    """The ids are a strided view, k columns of a row of all experts; of any device's memory."""
    view = _Tensor.from_address(address)
    k, n_rows = view.ne[0], view.ne[1]
    n_bytes = (n_rows - 1) * view.nb[1] + (k - 1) * view.nb[0] + 4 if k and n_rows else 0
    got = (ctypes.c_uint8 * n_bytes)()
    read = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    read(installed.function_address("ggml_backend_tensor_get"))(address, ctypes.addressof(got), 0, n_bytes)
    rows = [[int.from_bytes(got[at : at + 4], sys.byteorder, signed=True) for at in _offsets(view, row)] for row in range(n_rows)]
    return np.array(rows, np.int32).reshape(n_rows, k)


def _offsets(view: _Tensor, row: int) -> list[int]:
    return [row * view.nb[1] + j * view.nb[0] for j in range(view.ne[0])]
