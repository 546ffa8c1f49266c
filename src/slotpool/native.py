"""The one door to the core: ctypes over `core/include/slotpool.h`, and nothing else.

Knows no model, no plan and no engine; texts in, numbers out. Every other module calls these functions, never ctypes.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path

from slotpool.errors import SlotpoolError

INTERFACE = 3
"""Number of the C interface this file was written for; `core/include/slotpool.h` has the same."""
CORE_PATH = Path(__file__).with_name("libslotpool.so")
_TEXT_BYTES = 4096
_NO_LIMIT = 2**64 - 1


_PHASE_FIELDS = ("events", "lookups", "hits", "misses", "rows_hit", "rows_copy", "rows_cpu", "bytes_copied", "bytes_saved", "wait_ns")


class _Phase(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in _PHASE_FIELDS)


class _Group(ctypes.Structure):
    _fields_ = (
        ("layer", ctypes.c_int32),
        ("slots", ctypes.c_int32),
        ("n_expert", ctypes.c_int32),
        ("n_tensors", ctypes.c_int32),
        ("slab_bytes", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("generation", _Phase),
        ("prompt", _Phase),
        ("pass_", ctypes.c_char * 16),
        ("device", ctypes.c_char * 64),
    )


class _Lookup(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("expert", "slot", "evicted", "n_rows", "is_hit"))


@dataclass(frozen=True)
class PhaseCounts:
    """Counters of one phase. Lookups are distinct experts per event, rows are (token, k) pairs, bytes are slabs of all tensors.

    `wait_ns`: nanoseconds that the computing thread waited for slabs.
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
    wait_ns: int = field(default=0, compare=False)  # a time: no two runs have the same

    def __add__(self, other: PhaseCounts) -> PhaseCounts:
        return PhaseCounts(**{name: value + getattr(other, name) for name, value in vars(self).items()})


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


@dataclass(frozen=True)
class AvailableMemory:
    """Bytes that may still be taken, as the system counts them and as this process's control groups allow; None where no limit is known."""

    host: int | None
    cgroup: int | None

    @property
    def smallest(self) -> int | None:
        """What may be taken of both; None where nothing limits or the system does not say."""
        return min((one for one in (self.host, self.cgroup) if one is not None), default=None)


@dataclass(frozen=True)
class Lookup:
    """What an event found for one distinct expert: its slot (-1: none could be taken), whom it displaced (-1: nobody)."""

    expert: int
    slot: int
    evicted: int
    n_rows: int
    is_hit: bool


# name, result, arguments: the whole of slotpool.h
_FUNCTIONS: tuple[tuple[str, object, tuple[object, ...]], ...] = (
    ("slotpool_interface", ctypes.c_int, ()),
    ("slotpool_last_error", None, (ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_is_registered", ctypes.c_int, ()),
    ("slotpool_abi_check", ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_abi_check_library", ctypes.c_int, (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_open", ctypes.c_int, (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_loaded", None, ()),
    ("slotpool_session_close", None, (ctypes.c_int,)),
    ("slotpool_session_is_stored", ctypes.c_int, (ctypes.c_int, ctypes.c_char_p)),
    ("slotpool_session_take_failure", None, (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_add_reserve", None, (ctypes.c_int, ctypes.c_uint64)),
    ("slotpool_session_why_buffered", None, (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_off_reason", None, (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_session_stats", ctypes.c_int, (ctypes.c_int, ctypes.POINTER(_Group), ctypes.c_int)),
    ("slotpool_session_reset_stats", None, (ctypes.c_int,)),
    ("slotpool_session_corrupt", ctypes.c_int, (ctypes.c_int, ctypes.c_int, ctypes.c_int)),
    ("slotpool_available_memory", None, (ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64))),
    (
        "slotpool_fit_slots",
        ctypes.c_int,
        (
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint64,
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.c_char_p,
            ctypes.c_size_t,
        ),
    ),
    ("slotpool_pool_new", ctypes.c_void_p, (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_double)),
    ("slotpool_pool_free", None, (ctypes.c_void_p,)),
    (
        "slotpool_pool_event",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(_Lookup), ctypes.c_int),
    ),
    (
        "slotpool_pool_pass",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(_Lookup), ctypes.c_int),
    ),
    ("slotpool_pool_find", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_publish", None, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_abandon", None, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_evict", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_pin", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_unpin", None, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_replay", ctypes.c_int64, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)),
    ("slotpool_file_open", ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_file_close", None, (ctypes.c_void_p,)),
    ("slotpool_file_alignment", ctypes.c_size_t, (ctypes.c_void_p,)),
    ("slotpool_file_why_buffered", None, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)),
    (
        "slotpool_file_identity",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_int64)),
    ),
    (
        "slotpool_file_read",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t),
    ),
    (
        "slotpool_file_read_anywhere",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t),
    ),
    ("slotpool_reader_new", ctypes.c_void_p, (ctypes.c_int,)),
    ("slotpool_reader_free", None, (ctypes.c_void_p,)),
    (
        "slotpool_read_new",
        ctypes.c_void_p,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_size_t),
    ),
    ("slotpool_read_free", None, (ctypes.c_void_p,)),
    ("slotpool_read_state", ctypes.c_int, (ctypes.c_void_p,)),
    ("slotpool_read_error", None, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_reader_submit", None, (ctypes.c_void_p, ctypes.c_void_p)),
    ("slotpool_reader_wait", ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p)),
    ("slotpool_reader_cancel", None, (ctypes.c_void_p, ctypes.c_void_p)),
)


@cache
def core() -> ctypes.CDLL:
    """The core, loaded once. Raises SlotpoolError when it is missing or of another interface."""
    try:
        library = ctypes.CDLL(str(CORE_PATH))
    except OSError as error:
        raise SlotpoolError(f"expected the core library, found none: {error}", do="Install slotpool again.") from error
    found = library.slotpool_interface()
    if found != INTERFACE:
        raise SlotpoolError(f"expected a core of interface {INTERFACE}, found {found}", where=str(CORE_PATH), do="Install slotpool again.")
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def last_error() -> str:
    """Why the core last refused to be registered; empty when it never did."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    core().slotpool_last_error(text, _TEXT_BYTES)
    return _decoded(text)


def is_registered() -> bool:
    """Whether ggml has this core's registry, and not that of another copy of the core."""
    return bool(core().slotpool_is_registered())


def check_abi(address: int) -> str:
    """Compares the ggml that holds the function at `address` with what the core was written for. Empty: it fits; else why not."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    core().slotpool_abi_check(address, text, _TEXT_BYTES)
    return _decoded(text)


def check_abi_of(library: Path) -> str:
    """As `check_abi`, for a library at a path."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    core().slotpool_abi_check_library(bytes(library), text, _TEXT_BYTES)
    return _decoded(text)


def available_memory(root: str = "") -> AvailableMemory:
    """Memory that may still be taken, now. `root` stands for `/` in tests."""
    host, cgroup = ctypes.c_uint64(), ctypes.c_uint64()
    core().slotpool_available_memory(os.fsencode(root), ctypes.byref(host), ctypes.byref(cgroup))
    return AvailableMemory(*(None if one.value == _NO_LIMIT else one.value for one in (host, cgroup)))


def fit_slots(plan: str, n_bytes: int, slot_bytes: Sequence[int]) -> list[int]:
    """Slots of each group of the plan that fit into `n_bytes`, where a slot of group i takes `slot_bytes[i]`.

    Raises SlotpoolError when the core does not take the plan's text, or another number of groups was given.
    """
    n_groups = len(slot_bytes)
    slots, text = (ctypes.c_int32 * n_groups)(), ctypes.create_string_buffer(_TEXT_BYTES)
    encoded = _encoded(plan)
    sizes = (ctypes.c_uint64 * n_groups)(*slot_bytes)
    if core().slotpool_fit_slots(encoded, len(encoded), n_bytes, sizes, n_groups, slots, text, _TEXT_BYTES) < 0:
        raise SlotpoolError(_decoded(text))
    return list(slots)


class Session:
    """One model under one plan, as the core sees it. Open while the model and its first context are being made."""

    def __init__(self, plan: str) -> None:
        """Raises SlotpoolError when the core does not take the plan's text."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        encoded = _encoded(plan)
        self.number = int(core().slotpool_session_open(encoded, len(encoded), text, _TEXT_BYTES))
        if self.number == 0:
            raise SlotpoolError(_decoded(text))

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
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        core().slotpool_session_take_failure(self.number, text, _TEXT_BYTES)
        return _decoded(text)

    def add_reserve(self, n_bytes: int) -> None:
        """Bytes that will be taken before slots of experts on disk are allocated, and do not count as taken yet (compute buffers)."""
        core().slotpool_session_add_reserve(self.number, n_bytes)

    def why_buffered(self) -> str:
        """Why experts on disk are not read directly; empty when they are, or are not on disk."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        core().slotpool_session_why_buffered(self.number, text, _TEXT_BYTES)
        return _decoded(text)

    def off_reason(self, group: int) -> str:
        """Why a planned group is not pooled after all; empty when it is."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        core().slotpool_session_off_reason(self.number, group, text, _TEXT_BYTES)
        return _decoded(text)

    def counts(self) -> list[GroupCounts]:
        """The counters of every planned group. Empty once the session is closed."""
        n_groups = core().slotpool_session_stats(self.number, None, 0)
        groups = (_Group * n_groups)()
        core().slotpool_session_stats(self.number, groups, n_groups)
        return [_group(group) for group in groups]

    def reset_counts(self) -> None:
        """Sets all counters to zero; the pool keeps what it holds."""
        core().slotpool_session_reset_stats(self.number)

    def corrupt(self, group: int, *, swap_slots: bool) -> int:
        """Damages a group's pool on purpose: a wrong slot map, or one changed byte in each slot. Returns the slots touched."""
        return int(core().slotpool_session_corrupt(self.number, group, 0 if swap_slots else 1))


class Pool:
    """The core's slot table and policy alone, without bytes: for the simulator, benchmarks and property tests."""

    def __init__(self, n_expert: int, n_slots: int, policy: str, decay: float = 0.97) -> None:
        in_range = 1 <= n_slots <= n_expert < 2**31  # ctypes would cut a number to 32 bits
        self._pool = core().slotpool_pool_new(n_expert, n_slots, policy.encode(), decay) if in_range else None
        if not self._pool:
            raise SlotpoolError(
                f"expected policy lru or decay, 1 to n_expert slots and a decay in (0, 1], "
                f'found "{policy}", {n_slots} slots of {n_expert}, {decay}'
            )
        self._n_expert = n_expert

    def event(self, ids: Sequence[int], *, publish: bool = True) -> list[Lookup]:
        """One event: `ids` in (token, k) order. With `publish` admitted slots are complete at once. ValueError on an id out of range."""
        return self._ask(core().slotpool_pool_event, ids, publish)

    def passing(self, ids: Sequence[int], *, publish: bool = True) -> list[Lookup]:
        """As `event`, for an event too large for the slots: it fills free ones and evicts nobody."""
        return self._ask(core().slotpool_pool_pass, ids, publish)

    def _ask(self, question: Callable[..., int], ids: Sequence[int], publish: bool) -> list[Lookup]:
        out = (_Lookup * self._n_expert)()
        try:
            rows = array("i", ids)  # ctypes would cut an id to 32 bits
            n_found = question(self._pool, rows.buffer_info()[0], len(ids), int(publish), out, self._n_expert)
        except OverflowError:
            n_found = -1
        if n_found < 0:
            raise ValueError(f"expected expert ids from 0 to {self._n_expert - 1}, found one outside")
        return [Lookup(one.expert, one.slot, one.evicted, one.n_rows, bool(one.is_hit)) for one in out[:n_found]]

    def replay(self, address: int, n_events: int, n_used: int) -> int:
        """Hits of `n_events` events of `n_used` int32 ids each, contiguous in memory from `address`. ValueError on an id out of range."""
        hits = int(core().slotpool_pool_replay(self._pool, address, n_events, n_used))
        if hits < 0:
            raise ValueError(f"expected expert ids from 0 to {self._n_expert - 1}, found one outside")
        return hits

    def find(self, expert: int) -> int:
        """Slot that holds the expert's bytes, -1 when none does."""
        return int(core().slotpool_pool_find(self._pool, expert))

    def publish(self, slot: int) -> None:
        """The slot's bytes are there."""
        core().slotpool_pool_publish(self._pool, slot)

    def abandon(self, slot: int) -> None:
        """The slot's bytes will not come: it is free again."""
        core().slotpool_pool_abandon(self._pool, slot)

    def evict(self, expert: int) -> bool:
        """Frees the expert's slot. False when it is not resident, pinned or being filled."""
        return bool(core().slotpool_pool_evict(self._pool, expert))

    def pin(self, expert: int) -> bool:
        """Keeps a resident expert from being evicted. False when it is not resident."""
        return bool(core().slotpool_pool_pin(self._pool, expert))

    def unpin(self, expert: int) -> None:
        """Undoes pin()."""
        core().slotpool_pool_unpin(self._pool, expert)

    def __del__(self) -> None:
        if getattr(self, "_pool", None):
            core().slotpool_pool_free(self._pool)


def _encoded(plan: str) -> bytes:
    return plan.encode("utf-8", "surrogateescape")  # the bytes of a path that is not UTF-8 come back as they were


class File:
    """A file as the core reads experts from it. For tests: they see what the core sees."""

    def __init__(self, path: Path, *, direct: bool) -> None:
        """Raises SlotpoolError when the path is no regular file or cannot be opened."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._file = core().slotpool_file_open(bytes(path), int(direct), text, _TEXT_BYTES)
        if not self._file:
            raise SlotpoolError(_decoded(text))

    @property
    def alignment(self) -> int:
        """Of offset, length and address of a read, in bytes. Never changes."""
        return int(core().slotpool_file_alignment(self._file))

    @property
    def why_buffered(self) -> str:
        """Why reads go through the page cache; empty while they are direct."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        core().slotpool_file_why_buffered(self._file, text, _TEXT_BYTES)
        return _decoded(text)

    @property
    def identity(self) -> tuple[int, int]:
        """Size in bytes and last change in nanoseconds since the epoch, of the file as it is now."""
        size, mtime_ns = ctypes.c_uint64(), ctypes.c_int64()
        core().slotpool_file_identity(self._file, ctypes.byref(size), ctypes.byref(mtime_ns))
        return size.value, mtime_ns.value

    def read(self, offset: int, capacity: int, needed: int, *, misalignment: int = 0) -> bytes:
        """`needed` bytes from `offset`, read to an address `misalignment` bytes past an aligned one. Raises SlotpoolError."""
        memory = _Aligned(self.alignment, capacity, misalignment)
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        if not core().slotpool_file_read(self._file, memory.address, offset, capacity, needed, text, _TEXT_BYTES):
            raise SlotpoolError(_decoded(text))
        return memory.first(needed)

    def read_anywhere(self, offset: int, size: int, *, misalignment: int = 0) -> bytes:
        """As `read`, for any offset and length."""
        memory = _Aligned(self.alignment, size, misalignment)
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        if not core().slotpool_file_read_anywhere(self._file, memory.address, offset, size, text, _TEXT_BYTES):
            raise SlotpoolError(_decoded(text))
        return memory.first(size)

    def __del__(self) -> None:
        if getattr(self, "_file", None):
            core().slotpool_file_close(self._file)


class ReadState(IntEnum):
    """How far a read in the background is."""

    IDLE = 0
    QUEUED = 1
    RUNNING = 2
    DONE = 3
    FAILED = 4


class Reader:
    """Threads that read in the background, in the order of submission. For tests: they see what the core sees."""

    def __init__(self, n_threads: int) -> None:
        self._reader = core().slotpool_reader_new(n_threads)
        if not self._reader:
            raise SlotpoolError("expected the system to start a thread, found that it does not")

    def submit(self, file: File, offset: int, capacity: int, needed: int) -> Read:
        """Queues a read behind the others."""
        read = Read(self, file, offset, capacity, needed)
        core().slotpool_reader_submit(self._reader, read.handle)
        return read

    def wait(self, read: Read) -> bytes:
        """The bytes of a read, once they are there. Raises SlotpoolError when they cannot be had."""
        if not core().slotpool_reader_wait(self._reader, read.handle):
            raise SlotpoolError(read.error)
        return read.bytes_read

    def cancel(self, read: Read) -> None:
        """Gives up the pieces that nobody has begun and waits for those that run. Idle afterwards."""
        if self._reader:
            core().slotpool_reader_cancel(self._reader, read.handle)

    def close(self) -> None:
        """Waits for what runs; what is queued fails."""
        if self._reader:
            core().slotpool_reader_free(self._reader)
        self._reader = None

    def __del__(self) -> None:
        self.close()


class Read:
    """A read in the background, with the memory it goes to. Made by `Reader.submit`."""

    def __init__(self, reader: Reader, file: File, offset: int, capacity: int, needed: int) -> None:
        self._reader, self._file, self._needed = reader, file, needed
        self._memory = _Aligned(file.alignment, capacity, 0)
        self.handle = core().slotpool_read_new(file._file, self._memory.address, offset, capacity, needed)

    @property
    def state(self) -> ReadState:
        return ReadState(core().slotpool_read_state(self.handle))

    @property
    def error(self) -> str:
        """Why it failed. Of a read that is done or failed."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        core().slotpool_read_error(self.handle, text, _TEXT_BYTES)
        return _decoded(text)

    @property
    def bytes_read(self) -> bytes:
        """What is in its memory. Of a read that is done."""
        return self._memory.first(self._needed)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._reader.cancel(self)  # its memory must not go while a thread writes to it
            core().slotpool_read_free(self.handle)


class _Aligned:
    """Memory for `size` bytes, from `misalignment` bytes past an address that is a multiple of `alignment`."""

    def __init__(self, alignment: int, size: int, misalignment: int) -> None:
        self._memory = ctypes.create_string_buffer(size + 2 * alignment + misalignment)
        base = ctypes.addressof(self._memory)
        self.address = base + -base % alignment + misalignment

    def first(self, size: int) -> bytes:
        return ctypes.string_at(self.address, size)


def _decoded(text: Iterable[bytes]) -> str:
    return b"".join(text).split(b"\0", 1)[0].decode("utf-8", "replace")


def _phase(phase: _Phase) -> PhaseCounts:
    return PhaseCounts(**{name: getattr(phase, name) for name in _PHASE_FIELDS})


def _group(group: _Group) -> GroupCounts:
    return GroupCounts(
        layer=group.layer,
        pass_=group.pass_.decode("utf-8", "replace"),
        device=group.device.decode("utf-8", "replace"),  # may be cut in the middle of a character
        slots=group.slots,
        n_expert=group.n_expert,
        n_tensors=group.n_tensors,
        slab_bytes=group.slab_bytes,
        refused=group.refused,
        generation=_phase(group.generation),
        prompt=_phase(group.prompt),
    )
