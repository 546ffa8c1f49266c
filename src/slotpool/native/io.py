"""Files and reads in the background as the core does them. For tests: they see what the core sees."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from pathlib import Path

from slotpool.errors import SlotpoolError
from slotpool.native.library import TEXT_BYTES, Functions, declared, decoded

# name, result, arguments
_FUNCTIONS: Functions = (
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
    (
        "slotpool_read_new_inverted",
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
core = declared(_FUNCTIONS)


class File:
    """A file as the core reads experts from it. For tests: they see what the core sees."""

    def __init__(self, path: Path, *, direct: bool) -> None:
        """Raises SlotpoolError when the path is no regular file or cannot be opened."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        self._file = core().slotpool_file_open(bytes(path), int(direct), text, TEXT_BYTES)
        if not self._file:
            raise SlotpoolError(decoded(text))

    @property
    def alignment(self) -> int:
        """Of offset, length and address of a read, in bytes. Never changes."""
        return int(core().slotpool_file_alignment(self._file))

    @property
    def why_buffered(self) -> str:
        """Why reads go through the page cache; empty while they are direct."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        core().slotpool_file_why_buffered(self._file, text, TEXT_BYTES)
        return decoded(text)

    @property
    def identity(self) -> tuple[int, int]:
        """Size in bytes and last change in nanoseconds since the epoch, of the file as it is now."""
        size, mtime_ns = ctypes.c_uint64(), ctypes.c_int64()
        core().slotpool_file_identity(self._file, ctypes.byref(size), ctypes.byref(mtime_ns))
        return size.value, mtime_ns.value

    def read(self, offset: int, capacity: int, needed: int, *, misalignment: int = 0) -> bytes:
        """`needed` bytes from `offset`, read to an address `misalignment` bytes past an aligned one. Raises SlotpoolError."""
        memory = _Aligned(self.alignment, capacity, misalignment)
        text = ctypes.create_string_buffer(TEXT_BYTES)
        if not core().slotpool_file_read(self._file, memory.address, offset, capacity, needed, text, TEXT_BYTES):
            raise SlotpoolError(decoded(text))
        return memory.first(needed)

    def read_anywhere(self, offset: int, size: int, *, misalignment: int = 0) -> bytes:
        """As `read`, for any offset and length."""
        memory = _Aligned(self.alignment, size, misalignment)
        text = ctypes.create_string_buffer(TEXT_BYTES)
        if not core().slotpool_file_read_anywhere(self._file, memory.address, offset, size, text, TEXT_BYTES):
            raise SlotpoolError(decoded(text))
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

    def submit_inverted(self, file: File, offset: int, n_bytes: int, unit: int) -> Read:
        """The same for any place, through a sink that inverts every bit and gets multiples of `unit` bytes."""
        read = Read(self, file, offset, n_bytes, n_bytes, unit)
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

    def __init__(self, reader: Reader, file: File, offset: int, capacity: int, needed: int, inverted_unit: int = 0) -> None:
        self._reader, self._file, self._needed = reader, file, needed
        self._memory = _Aligned(file.alignment, capacity, 0)
        if inverted_unit:
            self.handle = core().slotpool_read_new_inverted(file._file, self._memory.address, offset, needed, inverted_unit)
        else:
            self.handle = core().slotpool_read_new(file._file, self._memory.address, offset, capacity, needed)

    @property
    def state(self) -> ReadState:
        return ReadState(core().slotpool_read_state(self.handle))

    @property
    def error(self) -> str:
        """Why it failed. Of a read that is done or failed."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        core().slotpool_read_error(self.handle, text, TEXT_BYTES)
        return decoded(text)

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
