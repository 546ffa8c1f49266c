"""Reads the nodes of a running graph: names, shapes, sources and values, wherever their memory is.

The layout of a ggml_tensor is the one that `core/abi` verifies in the running ggml; `check_layout` asks for that first. Changes nothing.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotpool import engine
from slotpool.errors import REFUSED, SlotpoolError

I32, F32 = 26, 0
"""ggml's numbers of two types."""


class Node(ctypes.Structure):
    """A ggml_tensor. Sizes `ne` in elements, strides `nb` in bytes."""

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


_NAME_OFFSET = Node.name.offset
_Name = ctypes.c_char * 64


def check_layout() -> None:
    """Raises SlotpoolError when the running ggml is not the one whose tensors can be read."""
    problem = engine.abi_problem()
    if problem:
        raise SlotpoolError(problem, do="slotpool doctor shows what is installed.", exit_code=REFUSED)


def name_of(address: int) -> bytes:
    """The name of the node at `address`. Called for every node of every graph."""
    name: bytes = _Name.from_address(address + _NAME_OFFSET).value
    return name


def source(address: int, index: int) -> int:
    """Address of a node's source, 0 where it has none."""
    return Node.from_address(address).src[index] or 0


def rows_of(address: int) -> NDArray[np.int32]:
    """A copy of a matrix of I32, [ne1, ne0]; it may be a view with gaps between its rows."""
    node = Node.from_address(address)
    _expect(node, I32)
    width, n_rows = node.ne[0], node.ne[1]
    if width * n_rows == 0:
        return np.empty((n_rows, width), np.int32)
    data = _bytes_of(address, (n_rows - 1) * node.nb[1] + (width - 1) * node.nb[0] + 4)
    strided: NDArray[np.int32] = np.ndarray((n_rows, width), np.int32, data, strides=(node.nb[1], node.nb[0]))
    return np.ascontiguousarray(strided)


def floats_of(address: int) -> NDArray[np.float32]:
    """A copy of a contiguous tensor of F32, flat."""
    node = Node.from_address(address)
    _expect(node, F32)
    count = node.ne[0] * node.ne[1] * node.ne[2] * node.ne[3]
    return np.frombuffer(_bytes_of(address, 4 * count), np.float32) if count else np.empty(0, np.float32)


def _expect(node: Node, type_: int) -> None:
    if node.type != type_:
        raise SlotpoolError(f"expected {node.name.decode('utf-8', 'replace')} to be of ggml type {type_}, found {node.type}")


def _bytes_of(address: int, n_bytes: int) -> bytearray:
    data = bytearray(n_bytes)
    # not a look at its memory: a node of a device has none here
    _tensor_get()(address, ctypes.addressof((ctypes.c_char * n_bytes).from_buffer(data)), 0, n_bytes)
    return data


@cache
def _tensor_get() -> Any:
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    return prototype(engine.function_address("ggml_backend_tensor_get"))
