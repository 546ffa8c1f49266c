"""The one door to the core: ctypes over `core/include/slotpool.h`, and nothing else.

Knows no model, no plan and no engine; texts in, numbers out. Every other module calls these functions, never ctypes.
"""

from slotpool.native import io, library, memory, pool, replay, session
from slotpool.native.io import File, Read, Reader, ReadState
from slotpool.native.library import CORE_PATH, INTERFACE, check_abi, check_abi_of, is_registered, last_error
from slotpool.native.memory import AvailableMemory, available_memory, fit_slots
from slotpool.native.pool import Lookup, Pool
from slotpool.native.replay import ADMISSIONS, EventArrays, Replayed, belady
from slotpool.native.session import GroupCounts, PhaseCounts, Session

__all__ = [
    "ADMISSIONS",
    "CORE_PATH",
    "INTERFACE",
    "AvailableMemory",
    "EventArrays",
    "File",
    "GroupCounts",
    "Lookup",
    "PhaseCounts",
    "Pool",
    "Read",
    "ReadState",
    "Reader",
    "Replayed",
    "Session",
    "available_memory",
    "belady",
    "check_abi",
    "check_abi_of",
    "fit_slots",
    "io",
    "is_registered",
    "last_error",
    "library",
    "memory",
    "pool",
    "replay",
    "session",
]
