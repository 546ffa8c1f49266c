"""Processes with chaos devices: two plain ones, and one whose rows tell which device computed them and in what shape of call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.oracle import DeviceProcess, Oracle

SIGNED = {"devices": 1, "sign": 1}


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


@pytest.fixture(scope="session")
def signed() -> Iterator[DeviceProcess]:
    """A device that signs its rows."""
    with DeviceProcess(SIGNED) as process:
        yield process


@pytest.fixture(scope="session")
def signed_oracle() -> Iterator[Oracle]:
    """Plain llama.cpp with such a device, where prompts go by op offload."""
    with Oracle(SIGNED) as plain:
        yield plain
