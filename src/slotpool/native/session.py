"""Sessions of the core: one model under one plan, its counters and why it failed."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field

from slotpool.errors import SlotpoolError
from slotpool.native.library import TEXT_BYTES, Functions, declared, decoded, encoded

PHASE_COUNTERS = (
    *("events", "lookups", "hits", "misses", "rows_hit", "rows_copy", "rows_cpu", "bytes_copied", "bytes_saved"),
    *("ranges_copied", "empty_copies"),
    *("wait_ns", "copy_ns", "update_ns", "hit_compute_ns", "miss_compute_ns"),
)
"""The counters of a phase, in the order in which the core has them."""
GROUP_COUNTERS = ("refused", "admitted", "evicted", "uploads_in_flight", "warmed", "pinned")
"""Those of a group that no phase has, in the core's order. `uploads_in_flight` and `pinned` are no counters: so many there are now."""
_UNKNOWN = 2**64 - 1


class _Phase(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in PHASE_COUNTERS)


class _Group(ctypes.Structure):
    _fields_ = (
        ("layer", ctypes.c_int32),
        ("slots", ctypes.c_int32),
        ("n_expert", ctypes.c_int32),
        ("n_tensors", ctypes.c_int32),
        ("slab_bytes", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in GROUP_COUNTERS),
        ("generation", _Phase),
        ("prompt", _Phase),
        ("pass_", ctypes.c_char * 16),
        ("device", ctypes.c_char * 64),
    )


MISS_COSTS = ("copy_ns", "host_ns", "hits_ns", "fetch_ns")
"""Names of what misses cost on a device, in the order of the core."""


class _Device(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_uint64) for name in ("budget", "taken", "free", *MISS_COSTS, "staging")), ("name", ctypes.c_char * 64))


# name, result, arguments
_FUNCTIONS: Functions = (
    ("slotpool_session_open", ctypes.c_int, (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_loaded", None, ()),
    ("slotpool_session_close", None, (ctypes.c_int,)),
    ("slotpool_session_is_stored", ctypes.c_int, (ctypes.c_int, ctypes.c_char_p)),
    ("slotpool_session_take_failure", None, (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_add_reserve", None, (ctypes.c_int, ctypes.c_uint64)),
    ("slotpool_session_reserve", ctypes.c_uint64, (ctypes.c_int,)),
    ("slotpool_session_why_buffered", None, (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_repacked_bytes", ctypes.c_uint64, (ctypes.c_int,)),
    ("slotpool_session_off_reason", None, (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_trace", ctypes.c_int, (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)),
    (
        "slotpool_session_end_trace",
        ctypes.c_int,
        (ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64), ctypes.c_char_p, ctypes.c_size_t),
    ),
    ("slotpool_session_stats", ctypes.c_int, (ctypes.c_int, ctypes.POINTER(_Group), ctypes.c_int)),
    ("slotpool_session_ram_stats", ctypes.c_int, (ctypes.c_int, ctypes.POINTER(_Group), ctypes.c_int)),
    ("slotpool_session_reset_stats", None, (ctypes.c_int,)),
    ("slotpool_session_heat", ctypes.c_int, (ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)),
    ("slotpool_session_devices", ctypes.c_int, (ctypes.c_int, ctypes.POINTER(_Device), ctypes.c_int)),
    ("slotpool_session_why_no_page", None, (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_corrupt", ctypes.c_int, (ctypes.c_int, ctypes.c_int, ctypes.c_int)),
)
core = declared(_FUNCTIONS)


@dataclass(frozen=True)
class PhaseCounts:
    """Counters of one phase. Lookups are distinct experts per event, rows are (token, k) pairs, bytes are slabs of all tensors.

    `ranges_copied` are copies, slabs that follow each other in one; `empty_copies` are events that needed none.

    Nanoseconds: `wait_ns` the computing thread waited for slabs, `copy_ns` slabs were copied into slots, `update_ns` is the pool's own
    bookkeeping, `hit_compute_ns` and `miss_compute_ns` rows were computed from slots and where their experts lie.
    """

    events: int = 0
    lookups: int = 0
    hits: int = 0
    misses: int = 0
    rows_hit: int = 0
    rows_copy: int = 0
    rows_cpu: int = 0
    bytes_copied: int = 0
    bytes_saved: int = 0
    ranges_copied: int = 0
    empty_copies: int = 0
    # times: no two runs have the same
    wait_ns: int = field(default=0, compare=False)
    copy_ns: int = field(default=0, compare=False)
    update_ns: int = field(default=0, compare=False)
    hit_compute_ns: int = field(default=0, compare=False)
    miss_compute_ns: int = field(default=0, compare=False)

    def __add__(self, other: PhaseCounts) -> PhaseCounts:
        return PhaseCounts(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def __sub__(self, other: PhaseCounts) -> PhaseCounts:
        return PhaseCounts(**{name: value - getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class GroupCounts:
    """Counters of one group (the expert tensors of a layer that share a routing), summed over the session's contexts."""

    layer: int
    pass_: str
    device: str
    slots: int
    n_expert: int
    n_tensors: int
    slab_bytes: int
    refused: int
    generation: PhaseCounts
    prompt: PhaseCounts
    # what follows from the lookups and the slots, so that tests of those need not state it
    admitted: int = field(default=0, compare=False)
    evicted: int = field(default=0, compare=False)
    uploads_in_flight: int = field(default=0, compare=False)
    # of a profile: experts that slots began with, and slots whose experts are never evicted
    warmed: int = 0
    pinned: int = 0


@dataclass(frozen=True)
class DeviceMemory:
    """What a device gave to the pools of a session, bytes; None where nobody has asked yet. `free` is what there was when slots were
    allocated, with what the budget may not take.

    What misses cost lately, nanoseconds, 0 where nothing was measured: an expert of a layer copied (`copy_ns`) and computed by the CPU
    (`host_ns`), an event with nothing but hits (`hits_ns`), and what the CPU's part of an event fetches and gives back (`fetch_ns`).
    `staging` are bytes of what was taken: room for the experts of prompts that only pass through.
    """

    name: str
    budget: int | None
    taken: int
    free: int | None
    copy_ns: int = field(default=0, compare=False)
    host_ns: int = field(default=0, compare=False)
    hits_ns: int = field(default=0, compare=False)
    fetch_ns: int = field(default=0, compare=False)
    staging: int = field(default=0, compare=False)


class Session:
    """One model under one plan, as the core sees it. Open while the model and its first context are being made."""

    def __init__(self, plan: str) -> None:
        """Raises SlotpoolError when the core does not take the plan's text."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        plan_text = encoded(plan)
        self.number = int(core().slotpool_session_open(plan_text, len(plan_text), text, TEXT_BYTES))
        if self.number == 0:
            raise SlotpoolError(decoded(text))

    def loaded(self) -> None:
        """The model and its context are there: what is made from now on belongs to nobody."""
        core().slotpool_session_loaded()

    def close(self) -> None:
        """Forgets the session; its memory goes with the model and the context."""
        core().slotpool_session_close(self.number)

    def is_stored(self, tensor: str) -> bool:
        """Whether the loader put this expert tensor into the store."""
        return bool(core().slotpool_session_is_stored(self.number, tensor.encode()))

    def take_failure(self) -> str:
        """Why the last request failed, told once; empty when the pool did not make it fail."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        core().slotpool_session_take_failure(self.number, text, TEXT_BYTES)
        return decoded(text)

    def add_reserve(self, n_bytes: int) -> None:
        """Bytes that will be taken before slots of experts on disk are allocated, and do not count as taken yet (compute buffers)."""
        core().slotpool_session_add_reserve(self.number, n_bytes)

    def reserve(self) -> int:
        """Those bytes, or the plan's own number where that is more: it means the same ones."""
        return int(core().slotpool_session_reserve(self.number))

    def why_buffered(self) -> str:
        """Why experts on disk are not read directly; empty when they are, or are not on disk."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        core().slotpool_session_why_buffered(self.number, text, TEXT_BYTES)
        return decoded(text)

    def repacked_bytes(self) -> int:
        """Bytes of the experts whose slots hold them in the layout that llama.cpp repacks weights to, in slots or not."""
        return int(core().slotpool_session_repacked_bytes(self.number))

    def off_reason(self, group: int) -> str:
        """Why a planned group is not pooled after all; empty when it is."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        core().slotpool_session_off_reason(self.number, group, text, TEXT_BYTES)
        return decoded(text)

    def counts(self) -> list[GroupCounts]:
        """The counters of every planned group. Empty once the session is closed."""
        n_groups = core().slotpool_session_stats(self.number, None, 0)
        groups = (_Group * n_groups)()
        core().slotpool_session_stats(self.number, groups, n_groups)
        return [_group(group) for group in groups]

    def ram_counts(self) -> list[GroupCounts]:
        """The RAM tier of every planned group whose pool is on a device while experts stay on disk.

        Lookups are what the device's pool did not have, `bytes_copied` what was read from disk. Without a RAM tier a group has -1 slots.
        """
        n_groups = core().slotpool_session_ram_stats(self.number, None, 0)
        groups = (_Group * n_groups)()
        core().slotpool_session_ram_stats(self.number, groups, n_groups)
        return [_group(group) for group in groups]

    def devices(self) -> list[DeviceMemory]:
        """The devices of the plan, in its order. Empty once the session is closed."""
        n_devices = core().slotpool_session_devices(self.number, None, 0)
        found = (_Device * n_devices)()
        core().slotpool_session_devices(self.number, found, n_devices)
        return [
            DeviceMemory(
                one.name.decode("utf-8", "replace"),
                known_bytes(one.budget),
                one.taken,
                known_bytes(one.free),
                *(getattr(one, name) for name in (*MISS_COSTS, "staging")),
            )
            for one in found
        ]

    def why_no_page(self) -> str:
        """Why other processes cannot see the counters; empty when they can."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        core().slotpool_session_why_no_page(self.number, text, TEXT_BYTES)
        return decoded(text)

    def reset_counts(self) -> None:
        """Sets all counters to zero; the pool keeps what it holds."""
        core().slotpool_session_reset_stats(self.number)

    def heat(self, group: int) -> list[int]:
        """How many rows asked for each expert of the group so far, whatever was reset; empty once the session is closed."""
        n_expert = core().slotpool_session_heat(self.number, group, None, 0)
        heat = (ctypes.c_uint64 * n_expert)()
        core().slotpool_session_heat(self.number, group, heat, n_expert)
        return list(heat)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Appends the routing of every pooled event to a trace file that has its header. Call it before the first decode.

        Raises SlotpoolError when the file cannot be written.
        """
        text = ctypes.create_string_buffer(TEXT_BYTES)
        if not core().slotpool_session_trace(self.number, os.fsencode(path), text, TEXT_BYTES):
            raise SlotpoolError(decoded(text))

    def end_trace(self) -> tuple[int, int]:
        """Writes the end of the trace; events recorded, events dropped. Raises SlotpoolError when the file is not whole."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        n_events, n_dropped = ctypes.c_uint64(), ctypes.c_uint64()
        if not core().slotpool_session_end_trace(self.number, ctypes.byref(n_events), ctypes.byref(n_dropped), text, TEXT_BYTES):
            raise SlotpoolError(decoded(text))
        return n_events.value, n_dropped.value

    def corrupt(self, group: int, *, swap_slots: bool) -> int:
        """Damages a group's pool on purpose: a wrong slot map, or one changed byte in each slot. Returns the slots touched."""
        return int(core().slotpool_session_corrupt(self.number, group, 0 if swap_slots else 1))

    def flip_bit(self, group: int) -> int:
        """Damages a group's pool on purpose: one bit in the slab of one slot in use. Returns the slots touched: 0 where none is in use."""
        return int(core().slotpool_session_corrupt(self.number, group, 2))


def known_bytes(n_bytes: int) -> int | None:
    """Bytes as the core keeps them: all bits set means that nobody knows."""
    return None if n_bytes == _UNKNOWN else n_bytes


def _phase(phase: _Phase) -> PhaseCounts:
    return PhaseCounts(**{name: getattr(phase, name) for name in PHASE_COUNTERS})


def _group(group: _Group) -> GroupCounts:
    return GroupCounts(
        layer=group.layer,
        pass_=group.pass_.decode("utf-8", "replace"),
        device=group.device.decode("utf-8", "replace"),  # may be cut in the middle of a character
        slots=group.slots,
        n_expert=group.n_expert,
        n_tensors=group.n_tensors,
        slab_bytes=group.slab_bytes,
        **{name: getattr(group, name) for name in GROUP_COUNTERS},
        generation=_phase(group.generation),
        prompt=_phase(group.prompt),
    )
