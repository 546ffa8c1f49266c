"""Processes with a chaos device, lazy and threaded, and an RPC server on loopback; the plain oracle knows neither."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from testkit.chaos.process import process

Devices = Callable[..., ProcessPoolExecutor]

_SERVER = """
import ctypes, sys
from slotpool import engine
function = lambda name, result, *arguments: ctypes.CFUNCTYPE(result, *arguments)(engine.function_address(name))
registry = function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"RPC")
find = function("ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
start = find(registry, b"ggml_backend_rpc_start_server")
cpu = function("ggml_backend_dev_by_type", ctypes.c_void_p, ctypes.c_int)(0)
devices = (ctypes.c_void_p * 1)(cpu)
arguments = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
ctypes.CFUNCTYPE(None, *arguments)(start)(sys.argv[1].encode(), None, 1, 1, ctypes.addressof(devices))
"""


@pytest.fixture(scope="session")
def lazy() -> Iterator[ProcessPoolExecutor]:
    """Two devices that execute nothing before somebody waits."""
    with process({"devices": 2}) as made:
        yield made


@pytest.fixture(scope="session")
def threaded() -> Iterator[ProcessPoolExecutor]:
    """Two devices that execute on threads of their own."""
    with process({"devices": 2, "threaded": 1}) as made:
        yield made


@pytest.fixture(scope="session", params=["lazy", "threaded"])
def devices(request: pytest.FixtureRequest) -> ProcessPoolExecutor:
    made: ProcessPoolExecutor = request.getfixturevalue(request.param)
    return made


@pytest.fixture(scope="session")
def rpc_server() -> Iterator[str]:
    """host:port of an RPC server whose device is the CPU."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, endpoint], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(endpoint, server)
        yield endpoint
    finally:
        server.kill()
        server.wait()


def _wait_for(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    host, port = endpoint.split(":")
    for _ in range(300):
        with socket.socket() as client:
            if client.connect_ex((host, int(port))) == 0:
                return
        assert server.poll() is None, "the RPC server ended"
        time.sleep(0.1)
    raise TimeoutError(f"no RPC server at {endpoint}")
