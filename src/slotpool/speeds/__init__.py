"""Measured speeds of this machine: what was measured, how it is named, and the file in the user's cache that keeps it.

Measures nothing and knows no engine: `slotpool.probe` fills it, the planner reads it.
"""

from slotpool.speeds.cache import cache_path, keep, recall
from slotpool.speeds.facts import (
    BUSY_LOAD,
    DISK_DEPTHS,
    DOWNLOAD,
    FAULTS,
    LATENCY,
    NODE,
    PINNED,
    READ,
    REPACKED,
    UNITS,
    UPLOAD,
    WITH_EXPERTS,
    WITH_UPLOAD,
    Speed,
    Speeds,
    direct,
    experts,
    plain,
    summary,
)

__all__ = [
    "BUSY_LOAD",
    "DISK_DEPTHS",
    "DOWNLOAD",
    "FAULTS",
    "LATENCY",
    "NODE",
    "PINNED",
    "READ",
    "REPACKED",
    "UNITS",
    "UPLOAD",
    "WITH_EXPERTS",
    "WITH_UPLOAD",
    "Speed",
    "Speeds",
    "cache_path",
    "direct",
    "experts",
    "keep",
    "plain",
    "recall",
    "summary",
]
