"""Devices of ggml's RPC servers."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable, Sequence
from typing import Any

from slotpool.engine.library import function
from slotpool.errors import SlotpoolError, printable, quoted

_CONNECT_SECONDS = 5.0


def add_rpc_servers(endpoints: Sequence[str]) -> None:
    """Adds the devices of ggml RPC servers, `host:port` each, as llama.cpp's --rpc does; they become RPC0, RPC1...

    Raises SlotpoolError for a server that cannot be reached (the engine would abort) and for an engine without RPC.
    """
    add = _rpc_function("ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p) if endpoints else None
    for endpoint in endpoints:
        _check_reachable(endpoint)
        assert add
        registry = add(endpoint.encode())
        if not registry:
            raise SlotpoolError("expected an RPC server with devices, found one without", where=printable(endpoint))
        function("ggml_backend_register", None, ctypes.c_void_p)(registry)


def _rpc_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    registry = function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"RPC")
    find = function("ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    address = find(registry, name.encode()) if registry else None
    if not address:
        raise SlotpoolError(
            "expected an engine with RPC, found one without",
            where="--rpc",
            do='Install it with CMAKE_ARGS="-DGGML_RPC=ON" pip install --force-reinstall llama-cpp-python.',
        )
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def _check_reachable(endpoint: str) -> None:
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SlotpoolError(f'expected host:port of an RPC server, found "{quoted(endpoint)}"', where="--rpc")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise SlotpoolError(f"expected an RPC server at {printable(endpoint)}, found none: {reason}", where="--rpc") from error
