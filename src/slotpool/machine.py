"""Facts about this machine that need no engine: cores and memory.

Measures no speed; that is the probe's job.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Machine:
    """`n_cores` are logical cores; memory in bytes, `ram_available` as the system counts it."""

    system: str
    processor: str
    n_cores: int
    ram_total: int
    ram_available: int


def read() -> Machine:
    """The machine as it is now."""
    memory = psutil.virtual_memory()
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=platform.processor() or platform.machine(),
        n_cores=psutil.cpu_count() or 1,
        ram_total=memory.total,
        ram_available=memory.available,
    )
