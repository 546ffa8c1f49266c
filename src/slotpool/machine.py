"""Facts about this machine that need no engine: cores and memory, and what limits the memory.

Measures no speed; that is the probe's job.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

import psutil

from slotpool import native
from slotpool.errors import SlotpoolError


@dataclass(frozen=True)
class Machine:
    """`n_cores` are logical cores; memory in bytes.

    `ram_available` is the smaller of what the system has (`ram_system`) and what this process's control groups leave it
    (`ram_cgroup`, None where they do not limit); `ram_limited_by` is `system` or `cgroup`, whichever is the smaller.
    """

    system: str
    processor: str
    n_cores: int
    ram_total: int
    ram_available: int
    ram_system: int
    ram_cgroup: int | None
    ram_limited_by: str


def read() -> Machine:
    """The machine as it is now."""
    memory = psutil.virtual_memory()
    found = _available()
    system = memory.available if found.host is None else found.host
    is_limited = found.cgroup is not None and found.cgroup < system
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=platform.processor() or platform.machine(),
        n_cores=psutil.cpu_count() or 1,
        ram_total=memory.total,
        ram_available=found.cgroup if found.cgroup is not None and is_limited else system,
        ram_system=system,
        ram_cgroup=found.cgroup,
        ram_limited_by="cgroup" if is_limited else "system",
    )


_CAP_IPC_LOCK = 14


def lock_limit() -> int | None:
    """Bytes of memory that this process may lock; None where nothing limits it, or the system has no such limit."""
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if limit == resource.RLIM_INFINITY or may_lock_all(_text_of(Path("/proc/self/status"))) else limit


def may_lock_all(status: str) -> bool:
    """Whether a process with this /proc/PID/status is bound by no limit: CAP_IPC_LOCK is among its effective capabilities."""
    masks = (line.split(":", 1)[1].strip() for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(next(masks, "0"), 16) >> _CAP_IPC_LOCK & 1)


def cpu_name() -> str:
    """The processor's name as it is sold; what the system calls it where nothing says."""
    lines = _text_of(Path("/proc/cpuinfo")).splitlines()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def driver_version(device: str) -> str | None:
    """Version of the driver behind one of ggml's devices (`CUDA0`); None where nothing says it."""
    if not device.startswith("CUDA"):
        return None
    found = re.search(r"\b\d{2,4}\.\d+(\.\d+)?\b", _text_of(Path("/proc/driver/nvidia/version")))
    return found[0] if found else None


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _available() -> native.AvailableMemory:
    try:
        return native.available_memory()
    except SlotpoolError:
        return native.AvailableMemory(None, None)  # without a core nothing is pooled, and doctor says so
