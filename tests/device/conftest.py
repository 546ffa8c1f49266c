"""Processes with two chaos devices, lazy and threaded; the plain oracle knows neither of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.oracle import DeviceProcess


@pytest.fixture(scope="session")
def lazy() -> Iterator[DeviceProcess]:
    """Two devices that execute nothing before somebody waits."""
    with DeviceProcess({"devices": 2}) as process:
        yield process


@pytest.fixture(scope="session")
def threaded() -> Iterator[DeviceProcess]:
    """Two devices that execute on threads of their own."""
    with DeviceProcess({"devices": 2, "threaded": 1}) as process:
        yield process


@pytest.fixture(scope="session", params=["lazy", "threaded"])
def devices(request: pytest.FixtureRequest) -> DeviceProcess:
    process: DeviceProcess = request.getfixturevalue(request.param)
    return process
