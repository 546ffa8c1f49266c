"""A ggml RPC server in this process over one device of it, as the engine's `ggml-rpc-server` is: python -m testkit.rpc_server HOST:PORT.

Serves one client after the other until it is killed. For loopback only: the protocol knows neither passwords nor encryption.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from slotpool import engine

_START_SECONDS = 60.0


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


# ---- for who needs one ----


def free_port() -> int:
    """A port on loopback on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def served() -> Iterator[int]:
    """A server in a process of its own; its port on loopback."""
    port = free_port()
    with process([sys.executable, "-m", "testkit.rpc_server", f"127.0.0.1:{port}"]) as server:
        _wait_for(port, server)
        yield port


@contextmanager
def process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that finds the modules this one finds, whose stdin and stdout are pipes; killed at the end."""
    places = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, env=places, stdin=pipe, stdout=pipe, stderr=nowhere, text=True) as started:  # closes its pipes
        try:
            yield started
        finally:
            started.kill()


def _wait_for(port: int, server: subprocess.Popen[str]) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"expected an RPC server on port {port} within {_START_SECONDS:g} s, found none (exit code {server.poll()})")


if __name__ == "__main__":
    main(*sys.argv[1:])
