"""How fast a device takes slabs from memory of three kinds, through ggml as the core does: python -m benchmarks.gpu.link DEVICE.

Pageable memory is what the store has today; pinned is the device's own host buffer; registered is pageable memory that the device's backend
was asked to pin in place. A line of JSON per kind: GB/s by piece size, and the microseconds of a small read.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks.gpu.devices import present
from slotpool import engine

SIZES = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
_AREA = 1 << 28
_SECONDS = 0.15
_I8 = 24
_P, _N = ctypes.c_void_p, ctypes.c_size_t


class _Init(ctypes.Structure):
    _fields_ = (("size", _N), ("memory", _P), ("no_alloc", ctypes.c_bool))


def main(name: str) -> None:
    """Prints a line per kind of memory."""
    os.environ["GGML_CUDA_REGISTER_HOST"] = "1"  # read by the backend at every question
    with present(name):
        device = _call("ggml_backend_dev_by_name", _P, ctypes.c_char_p)(name.encode())
        context = _call("ggml_init", _P, _Init)(_Init(1 << 16, None, True))
        tensor = _call("ggml_new_tensor_1d", _P, _P, ctypes.c_int, ctypes.c_int64)(context, _I8, _AREA)
        buffer_type = _call("ggml_backend_dev_buffer_type", _P, _P)(device)
        if not _call("ggml_backend_alloc_ctx_tensors_from_buft", _P, _P, _P)(context, buffer_type):
            raise SystemExit(f"expected {_AREA} bytes of {name}, found none")
        pageable = np.ones(_AREA, np.uint8)
        say("pageable", tensor, pageable.ctypes.data)
        if pinned := _pinned(device):
            say("pinned", tensor, pinned)
        if _register(device, pageable):
            say("registered", tensor, pageable.ctypes.data)


def say(kind: str, tensor: int, memory: int) -> None:
    set_tensor = _call("ggml_backend_tensor_set", None, _P, _P, _N, _N)
    get_tensor = _call("ggml_backend_tensor_get", None, _P, _P, _N, _N)
    speeds = {}
    for size in SIZES:
        n, begin = 0, time.perf_counter()
        while (took := time.perf_counter() - begin) < _SECONDS:
            offset = n * size % _AREA
            set_tensor(tensor, memory + offset, offset, size)
            n += 1
        speeds[str(size)] = n * size / took / 1e9
    begin = time.perf_counter()
    for _ in range(200):
        get_tensor(tensor, memory, 0, 32)
    print(json.dumps({"memory": kind, "gb_per_second": speeds, "small_read_us": (time.perf_counter() - begin) / 200 * 1e6}), flush=True)


def _pinned(device: int) -> int:
    """Memory of the device's host buffer type; 0 where it has none of its own."""
    host = _call("ggml_backend_dev_host_buffer_type", _P, _P)(device)
    buffer = _call("ggml_backend_buft_alloc_buffer", _P, _P, _N)(host, _AREA) if host else None
    return int(_call("ggml_backend_buffer_get_base", _P, _P)(buffer)) if buffer else 0


def _register(device: int, memory: Any) -> bool:
    registry = _call("ggml_backend_dev_backend_reg", _P, _P)(device)
    found = _call("ggml_backend_reg_get_proc_address", _P, _P, ctypes.c_char_p)(registry, b"ggml_backend_register_host_buffer")
    return bool(found) and bool(ctypes.CFUNCTYPE(ctypes.c_bool, _P, _N)(found)(memory.ctypes.data, memory.nbytes))


def _call(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)(engine.function_address(name))


if __name__ == "__main__":
    main(sys.argv[1])
