"""The devices of the running ggml."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from slotpool.engine.library import function

_TYPES = ("CPU", "GPU", "IGPU", "ACCEL", "META")


@dataclass(frozen=True)
class Device:
    """One device as ggml lists it. Memory in bytes; 0 where the device reports none."""

    name: str
    description: str
    type: str
    free_bytes: int
    total_bytes: int


def devices() -> list[Device]:
    """The devices of the running ggml, in its order."""
    count = function("ggml_backend_dev_count", ctypes.c_size_t)()
    return [_device(index) for index in range(count)]


def offload_devices() -> list[str]:
    """Names of the devices that the engine gives layers to when nobody says which: its GPUs. Backends have been loaded by then."""
    return [device.name for device in devices() if device.type in ("GPU", "IGPU")]


def _device(index: int) -> Device:
    handle = function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)(index)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    size = ctypes.POINTER(ctypes.c_size_t)
    function("ggml_backend_dev_memory", None, ctypes.c_void_p, size, size)(handle, free, total)
    kind = function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(handle)
    return Device(
        name=function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)(handle).decode(),
        description=function("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)(handle).decode("utf-8", "replace"),
        type=_TYPES[kind] if kind < len(_TYPES) else f"type {kind}",
        free_bytes=free.value,
        total_bytes=total.value,
    )
