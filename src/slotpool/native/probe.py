"""Speeds of this machine as the core measures them: memory, matmuls, links, files. Which ones, and how often, is for others to say."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from slotpool.errors import SlotpoolError
from slotpool.native.library import TEXT_BYTES, Functions, declared, decoded

_READ, _MULTIPLY, _NODES, _COPY = range(4)
_MAX_NAME = 63


class _Spec(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "n_threads", "type", "n_matrices", "n_used", "to_host", "pinned", "repacked")),
        ("ne0", ctypes.c_int64),
        ("ne1", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("slab_bytes", ctypes.c_uint64),
        ("device", ctypes.c_char * 64),
        ("type_name", ctypes.c_char * 64),
    )


_TEXT = (ctypes.c_char_p, ctypes.c_size_t)
_COUNT = ctypes.POINTER(ctypes.c_uint64)
# name, result, arguments
_FUNCTIONS: Functions = (
    ("slotpool_probe_new", ctypes.c_void_p, (ctypes.c_void_p, *_TEXT)),
    ("slotpool_probe_free", None, (ctypes.c_void_p,)),
    ("slotpool_probe_work_new", ctypes.c_void_p, (ctypes.c_void_p, ctypes.POINTER(_Spec), *_TEXT)),
    (
        "slotpool_probe_file_new",
        ctypes.c_void_p,
        (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p, *_TEXT),
    ),
    ("slotpool_probe_repacks", ctypes.c_int, (ctypes.c_void_p, ctypes.POINTER(_Spec))),
    ("slotpool_probe_work_free", None, (ctypes.c_void_p,)),
    ("slotpool_probe_repeat", ctypes.c_int, (ctypes.c_void_p, ctypes.c_uint64, _COUNT, _COUNT)),
    ("slotpool_probe_fill", ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64)),
    ("slotpool_probe_drop", None, (ctypes.c_void_p,)),
    ("slotpool_probe_properties", ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int))),
)
core = declared(_FUNCTIONS)


@dataclass(frozen=True)
class Matrices:
    """Weights of a matmul: `count` matrices [ne0, ne1] of a type, by ggml's number and name. `n_used` is experts a token, 0: no experts.

    With `is_repacked` they lie as llama.cpp would repack them for the CPU; it must be one that does.
    """

    type: int
    type_name: str
    ne0: int
    ne1: int
    count: int
    n_used: int
    is_repacked: bool = False


class Work:
    """Something that is measured, set up and ready. Freed by `close`, or when nobody has it any more."""

    def __init__(self, handle: int, why_buffered: str = "", keeps: object = None) -> None:
        self._handle, self._keeps = handle, keeps
        self.why_buffered = why_buffered

    def repeat(self, seconds: float) -> tuple[int, float]:
        """Does it for at least `seconds`; bytes (of nodes: their number) and the seconds they took. Other threads of Python go on."""
        amount, ns = ctypes.c_uint64(), ctypes.c_uint64()
        if not core().slotpool_probe_repeat(self._handle, int(seconds * 1e9), amount, ns):
            raise SlotpoolError("expected work that can be measured, found that the device or the disk failed")
        return amount.value, max(1, ns.value) / 1e9

    def close(self) -> None:
        """Frees its memory."""
        if self._handle:
            core().slotpool_probe_work_free(self._handle)
        self._handle = 0

    def __del__(self) -> None:
        self.close()


class Filled:
    """Memory of a device that is taken until `close`."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def close(self) -> None:
        """Gives it back."""
        if self._handle:
            core().slotpool_probe_drop(self._handle)
        self._handle = 0

    def __del__(self) -> None:
        self.close()


class Probe:
    """The functions of the ggml that holds `address`. Every method raises SlotpoolError, with the core's words, for what cannot be had."""

    def __init__(self, address: int) -> None:
        text = ctypes.create_string_buffer(TEXT_BYTES)
        self._probe = core().slotpool_probe_new(address, text, TEXT_BYTES)
        if not self._probe:
            raise SlotpoolError(decoded(text))

    def read(self, n_bytes: int, n_threads: int) -> Work:
        """Plain reads of memory by so many threads."""
        return self._work(_Spec(kind=_READ, bytes=n_bytes, n_threads=n_threads))

    def multiply(self, device: str, matrices: Matrices, n_threads: int) -> Work:
        """One-token matmuls on a device, through all matrices; the bytes are those of the weights that are used."""
        return self._work(_spec_of(device, matrices, n_threads))

    def repacks(self, matrices: Matrices) -> bool:
        """Whether llama.cpp would repack such weights for the CPU, however many there are."""
        spec = _spec_of("CPU", matrices, 1)
        spec.n_matrices = max(2, matrices.n_used) if matrices.n_used else 1  # an expert tensor has more than one
        return bool(core().slotpool_probe_repacks(self._probe, ctypes.byref(spec)))

    def nodes(self, device: str, n_threads: int) -> Work:
        """Nodes that compute next to nothing; their number is what is counted."""
        return self._work(_Spec(kind=_NODES, n_threads=n_threads, device=_name(device)))

    def copy(self, device: str, host_bytes: int, slab_bytes: int, *, to_host: bool = False, pinned: bool = False) -> Work:
        """Copies of slabs between host memory and a device; `pinned`: memory of the device's own host buffer type."""
        spec = _Spec(kind=_COPY, device=_name(device), bytes=host_bytes, slab_bytes=slab_bytes, to_host=to_host, pinned=pinned)
        return self._work(spec)

    def has_host_memory(self, device: str) -> bool:
        """Whether the device has a host buffer type: pinned memory."""
        found = ctypes.c_int()
        return bool(core().slotpool_probe_properties(self._probe, _name(device), found)) and bool(found.value)

    def fill(self, device: str, n_bytes: int) -> Filled | None:
        """Takes memory of a device and writes to all of it; None when it has none left."""
        handle = core().slotpool_probe_fill(self._probe, _name(device), n_bytes)
        return Filled(handle) if handle else None

    def _work(self, spec: _Spec) -> Work:
        text = ctypes.create_string_buffer(TEXT_BYTES)
        handle = core().slotpool_probe_work_new(self._probe, ctypes.byref(spec), text, TEXT_BYTES)
        if not handle:
            raise SlotpoolError(decoded(text))
        return Work(handle, keeps=self)

    def __del__(self) -> None:
        if getattr(self, "_probe", None):
            core().slotpool_probe_free(self._probe)


def read_file(path: str | os.PathLike[str], begin: int, end: int, slab_bytes: int, depth: int) -> Work:
    """Reads of slabs at random places of [begin, end), `depth` at a time, as the pool reads experts. Raises SlotpoolError."""
    why, text = (ctypes.create_string_buffer(TEXT_BYTES) for _ in range(2))
    handle = core().slotpool_probe_file_new(os.fsencode(path), begin, end, slab_bytes, depth, why, text, TEXT_BYTES)
    if not handle:
        raise SlotpoolError(decoded(text))
    return Work(handle, decoded(why))


def _spec_of(device: str, matrices: Matrices, n_threads: int) -> _Spec:
    spec = _Spec(kind=_MULTIPLY, n_threads=n_threads, device=_name(device), type=matrices.type, type_name=_name(matrices.type_name))
    spec.ne0, spec.ne1, spec.n_matrices, spec.n_used = matrices.ne0, matrices.ne1, matrices.count, matrices.n_used
    spec.repacked = matrices.is_repacked
    return spec


def _name(text: str) -> bytes:
    name = text.encode()
    if len(name) > _MAX_NAME:
        raise SlotpoolError(f"expected a name of at most {_MAX_NAME} bytes, found one of {len(name)}")
    return name
