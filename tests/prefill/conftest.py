"""Processes with chaos devices: two plain ones, and one whose rows tell which device computed them and in what shape of call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.oracle import DeviceProcess, Oracle
from tests.device.conftest import lazy as lazy
from tests.device.conftest import threaded as threaded

SIGNED = {"devices": 1, "sign": 1}


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
