"""Memory that may be taken, and the slots that fit into it, as the core counts both."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

from slotpool.errors import SlotpoolError
from slotpool.native.library import TEXT_BYTES, Functions, declared, decoded, encoded

_NO_LIMIT = 2**64 - 1
_MOST_DEVICES = 64


class _Reserved(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_uint64) for name in ("weights", "context", "compute")), ("name", ctypes.c_char * 64))


# name, result, arguments
_FUNCTIONS: Functions = (
    (
        "slotpool_reserved_bytes",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_Reserved), ctypes.c_int),
    ),
    ("slotpool_available_memory", None, (ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64))),
    (
        "slotpool_fit_slots",
        ctypes.c_int,
        (
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint64,
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.c_char_p,
            ctypes.c_size_t,
        ),
    ),
)
core = declared(_FUNCTIONS)


@dataclass(frozen=True)
class AvailableMemory:
    """Bytes that may still be taken, as the system counts them and as this process's control groups allow; None where no limit is known."""

    host: int | None
    cgroup: int | None

    @property
    def smallest(self) -> int | None:
        """What may be taken of both; None where nothing limits or the system does not say."""
        return min((one for one in (self.host, self.cgroup) if one is not None), default=None)


def available_memory(root: str = "") -> AvailableMemory:
    """Memory that may still be taken, now. `root` stands for `/` in tests."""
    host, cgroup = ctypes.c_uint64(), ctypes.c_uint64()
    core().slotpool_available_memory(os.fsencode(root), ctypes.byref(host), ctypes.byref(cgroup))
    return AvailableMemory(*(None if one.value == _NO_LIMIT else one.value for one in (host, cgroup)))


def fit_slots(plan: str, n_bytes: int, slot_bytes: Sequence[int]) -> list[int]:
    """Slots of each group of the plan that fit into `n_bytes`, where a slot of group i takes `slot_bytes[i]`.

    Raises SlotpoolError when the core does not take the plan's text, or another number of groups was given.
    """
    n_groups = len(slot_bytes)
    slots, text = (ctypes.c_int32 * n_groups)(), ctypes.create_string_buffer(TEXT_BYTES)
    plan_text = encoded(plan)
    sizes = (ctypes.c_uint64 * n_groups)(*slot_bytes)
    if core().slotpool_fit_slots(plan_text, len(plan_text), n_bytes, sizes, n_groups, slots, text, TEXT_BYTES) < 0:
        raise SlotpoolError(decoded(text))
    return list(slots)


def reserved_bytes(breakdown: int, ggml: int, context: int) -> list[tuple[str, int, int, int]]:
    """What a context of the engine takes: (device, weights, KV cache, compute buffers) in bytes; `CPU` is all host memory.

    `breakdown` and `ggml` are addresses of functions. Only in a process of its own: the answer is a C++ object. Raises SlotpoolError.
    """
    found = (_Reserved * _MOST_DEVICES)()
    n_found = core().slotpool_reserved_bytes(breakdown, ggml, context, found, _MOST_DEVICES)
    if not 0 <= n_found <= _MOST_DEVICES:
        raise SlotpoolError(f"expected at most {_MOST_DEVICES} devices with memory, found {n_found}")
    return [(one.name.decode("utf-8", "replace"), one.weights, one.context, one.compute) for one in found[:n_found]]
