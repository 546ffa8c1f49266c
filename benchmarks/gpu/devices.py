"""The device of a worker by ggml's name: there already (CUDA0), or a stand-in that this process makes: CHAOS0, or RPC0 on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slotpool import engine


@contextmanager
def present(name: str) -> Iterator[None]:
    """Within it ggml has the device. SystemExit when it has not."""
    engine.devices()  # backends are loaded by now
    if name.startswith("CHAOS"):
        from testkit.chaos import Chaos

        Chaos.load()
        yield
    elif name.startswith("RPC"):
        from testkit.rpc_server import served

        with served() as port:
            engine.add_rpc_servers([f"127.0.0.1:{port}"])
            yield
    else:
        found = [device.name for device in engine.devices()]
        if name not in found:
            raise SystemExit(f"expected a device {name}, found {', '.join(found)}")
        yield
