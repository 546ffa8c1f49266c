"""The chaos device: the strictest device that ggml can have, for tests.

Knobs make it slow, small, broken or many; counters say what it did.

It belongs to a process for good and must be there before any model: what uses it runs in a process of its own. The knobs are those of
knobs.h, the counters those of counters.h; design: docs/design/testkit.md.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotpool import engine

from .build import ChaosError, library
from .counters import Counters, Node

__all__ = ["Chaos", "ChaosError", "Counters", "Node", "library"]

_ALL_DEVICES = -1


class Chaos:
    """The chaos devices of this process; `Chaos.load` makes them."""

    def __init__(self, path: Path) -> None:
        self._lib = ctypes.CDLL(os.fspath(path))
        self._lib.chaos_set.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_double)
        self._lib.chaos_get.argtypes, self._lib.chaos_get.restype = (ctypes.c_int, ctypes.c_char_p), ctypes.c_double
        self._lib.chaos_n_counters.restype = self._lib.chaos_first_hazard.restype = ctypes.c_size_t
        self._lib.chaos_error.restype = self._lib.chaos_log.restype = ctypes.c_size_t
        self._lib.chaos_counter_name.argtypes, self._lib.chaos_counter_name.restype = (ctypes.c_size_t,), ctypes.c_char_p
        self._lib.chaos_signature.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t)
        names = [self._lib.chaos_counter_name(i).decode() for i in range(self._lib.chaos_n_counters())]
        if names != [field.name for field in fields(Counters)]:
            raise ChaosError(f"expected the counters of testkit.chaos.Counters, got {names}")

    @classmethod
    def load(cls, *, devices: float = 1, **knobs: float) -> Chaos:
        """Makes ggml load so many devices, with knobs set on all of them. ChaosError, with the library's words, where that fails."""
        path = library()
        chaos = cls(path)
        chaos.set(_ALL_DEVICES, devices=devices, **knobs)
        load = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(engine.function_address("ggml_backend_load"))
        with engine.captured_log() as lines:
            load(os.fsencode(path))
        if not chaos._lib.chaos_is_registered():
            raise ChaosError(chaos.error() or "; ".join(lines) or "ggml_backend_load gave no reason")
        return chaos

    def set(self, device: int = _ALL_DEVICES, /, **knobs: float) -> None:
        """Turns knobs of one device or of all; True and False are 1 and 0."""
        for name, value in knobs.items():
            if self._lib.chaos_set(device, name.encode(), float(value)):
                raise ChaosError(self.error())

    def get(self, knob: str, device: int = 0) -> float:
        return float(self._lib.chaos_get(device, knob.encode()))

    def answer_free(self, answers: Sequence[int], device: int = 0) -> None:
        """What the device says to the next questions for its free memory, in bytes; afterwards the truth."""
        if self._lib.chaos_answer_free(device, (ctypes.c_uint64 * len(answers))(*answers), ctypes.c_size_t(len(answers))):
            raise ChaosError(self.error())

    def counters(self, device: int = 0) -> Counters:
        values = (ctypes.c_uint64 * len(fields(Counters)))()
        if self._lib.chaos_counters(device, values, ctypes.c_size_t(len(values))):
            raise ChaosError(self.error())
        return Counters(*values)

    def reset(self) -> None:
        """Counters, logs and the first hazard of every device begin again; `bytes_now` stays and `bytes_peak` begins there."""
        self._lib.chaos_reset()

    def first_hazard(self) -> str:
        """What touched what without waiting; empty when nothing did."""
        return self._text(self._lib.chaos_first_hazard)

    def error(self) -> str:
        """The last thing that could not be done; empty when there was none."""
        return self._text(self._lib.chaos_error)

    def graph_log(self, device: int = 0) -> list[Node]:
        """The nodes computed since the last reset, as many as the knob `log_nodes` allows."""
        rows = (line.split("\t") for line in self._text(self._lib.chaos_log, ctypes.c_int(device)).splitlines())
        return [Node(int(graph), op, name, int(n_tokens)) for graph, op, name, n_tokens in rows]

    def signature(self, device: int, n_tokens: int, k: int, n_elements: int) -> NDArray[np.uint32]:
        """What the knob `sign` changes in every row of a MUL_MAT_ID of that shape: bits to XOR with those of the row, [n_elements]."""
        bits = np.zeros(n_elements, np.uint8)
        self._lib.chaos_signature(device, n_tokens, k, bits.ctypes.data, n_elements)
        return bits.astype(np.uint32)

    def _text(self, function: Any, *arguments: Any) -> str:
        size = function(*arguments, None, ctypes.c_size_t(0)) + 1
        text = ctypes.create_string_buffer(size)
        function(*arguments, text, ctypes.c_size_t(size))
        return text.value.decode("utf-8", "replace")
