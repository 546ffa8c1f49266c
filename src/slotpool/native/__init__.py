"""The one door to the core: ctypes over `core/include/slotpool.h`, and nothing else.

Knows no model, no plan and no engine; texts in, numbers out. Every other module calls these functions, never ctypes.
"""

from slotpool.native import io, library, memory, pool, probe, recorder, replay, session
from slotpool.native.io import File, Read, Reader, ReadState
from slotpool.native.library import CORE_PATH, INTERFACE, check_abi, check_abi_of, is_registered, last_error
from slotpool.native.memory import AvailableMemory, available_memory, fit_slots
from slotpool.native.pool import Lookup, Pool
from slotpool.native.recorder import Recorder, Ring
from slotpool.native.replay import ADMISSIONS, EventArrays, Link, Replayed, belady
from slotpool.native.session import GROUP_COUNTERS, PHASE_COUNTERS, DeviceMemory, GroupCounts, PhaseCounts, Session, known_bytes

__all__ = [
    "ADMISSIONS",
    "CORE_PATH",
    "GROUP_COUNTERS",
    "INTERFACE",
    "PHASE_COUNTERS",
    "AvailableMemory",
    "DeviceMemory",
    "EventArrays",
    "File",
    "GroupCounts",
    "Link",
    "Lookup",
    "PhaseCounts",
    "Pool",
    "Read",
    "ReadState",
    "Reader",
    "Recorder",
    "Replayed",
    "Ring",
    "Session",
    "available_memory",
    "belady",
    "check_abi",
    "check_abi_of",
    "fit_slots",
    "io",
    "is_registered",
    "known_bytes",
    "last_error",
    "library",
    "memory",
    "pool",
    "probe",
    "recorder",
    "replay",
    "session",
]
