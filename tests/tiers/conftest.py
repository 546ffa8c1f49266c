"""Processes with a chaos device, lazy and threaded, and an RPC server on loopback; the plain oracle knows neither."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.oracle import DeviceProcess
from testkit.rpc_server import served


@pytest.fixture(scope="session")
def lazy() -> Iterator[DeviceProcess]:
    """Two devices that execute nothing before somebody waits."""
    with DeviceProcess({"devices": 2}) as made:
        yield made


@pytest.fixture(scope="session")
def threaded() -> Iterator[DeviceProcess]:
    """Two devices that execute on threads of their own."""
    with DeviceProcess({"devices": 2, "threaded": 1}) as made:
        yield made


@pytest.fixture(scope="session", params=["lazy", "threaded"])
def devices(request: pytest.FixtureRequest) -> DeviceProcess:
    made: DeviceProcess = request.getfixturevalue(request.param)
    return made


@pytest.fixture(scope="session")
def rpc_server() -> Iterator[str]:
    """host:port of an RPC server whose device is the CPU."""
    with served() as port:
        yield f"127.0.0.1:{port}"
