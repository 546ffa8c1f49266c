"""A ggml RPC server in this process over one device of it, as the engine's `ggml-rpc-server` is: python -m benchmarks.rpc_server HOST:PORT.

Serves one client after the other until it is killed. For loopback only: the protocol knows neither passwords nor encryption.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from slotpool import engine


def main(endpoint: str, device: str = "CPU") -> None:
    """Serves `device` with one thread. SystemExit where the engine has no RPC or no such device."""
    registry = _call("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"RPC")
    found = _call("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)(device.encode())
    if not registry or not found:
        raise SystemExit(f"expected an engine with RPC and a device {device}, found none")
    of_registry = _call("ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    start = of_registry(registry, b"ggml_backend_rpc_start_server")
    served = (ctypes.c_void_p * 1)(found)
    arguments = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CFUNCTYPE(None, *arguments)(start)(endpoint.encode(), None, 1, 1, ctypes.addressof(served))


def _call(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)(engine.function_address(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
