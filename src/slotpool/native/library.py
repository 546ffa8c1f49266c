"""The core's library: finds it, checks its interface number, declares its functions, and what concerns ggml and not a model.

Knows no session and no pool.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

from slotpool.errors import SlotpoolError

Functions: TypeAlias = Sequence[tuple[str, object, tuple[object, ...]]]
"""Of C functions: name, result, arguments."""
INTERFACE = 14
"""Number of the C interface this package was written for; `core/include/slotpool.h` has the same."""
CORE_PATH = Path(__file__).parents[1] / "libslotpool.so"
TEXT_BYTES = 4096


@cache
def load() -> ctypes.CDLL:
    """The core, loaded once. Raises SlotpoolError when it is missing or of another interface."""
    try:
        library = ctypes.CDLL(str(CORE_PATH))
    except OSError as error:
        raise SlotpoolError(f"expected the core library, found none: {error}", do="Install slotpool again.") from error
    found = library.slotpool_interface()
    if found != INTERFACE:
        raise SlotpoolError(f"expected a core of interface {INTERFACE}, found {found}", where=str(CORE_PATH), do="Install slotpool again.")
    return library


def declared(functions: Functions) -> Callable[[], ctypes.CDLL]:
    """A function that returns the core with `functions` ready to be called. Nothing is loaded before its first call."""

    @cache
    def ready(library: ctypes.CDLL) -> ctypes.CDLL:
        for name, result, arguments in functions:
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        return library

    return lambda: ready(load())


def decoded(text: ctypes.Array[ctypes.c_char]) -> str:
    """A text that the core wrote, up to its terminating zero."""
    return text.value.decode("utf-8", "replace")


def encoded(plan: str) -> bytes:
    """A plan's text as the core reads it."""
    return plan.encode("utf-8", "surrogateescape")  # the bytes of a path that is not UTF-8 come back as they were


# name, result, arguments
_FUNCTIONS: Functions = (
    ("slotpool_interface", ctypes.c_int, ()),
    ("slotpool_last_error", None, (ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_is_registered", ctypes.c_int, ()),
    ("slotpool_abi_check", ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)),
    ("slotpool_abi_check_library", ctypes.c_int, (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)),
)
core = declared(_FUNCTIONS)


def last_error() -> str:
    """Why the core last refused to be registered; empty when it never did."""
    text = ctypes.create_string_buffer(TEXT_BYTES)
    core().slotpool_last_error(text, TEXT_BYTES)
    return decoded(text)


def is_registered() -> bool:
    """Whether ggml has this core's registry, and not that of another copy of the core."""
    return bool(core().slotpool_is_registered())


def check_abi(address: int) -> str:
    """Compares the ggml that holds the function at `address` with what the core was written for. Empty: it fits; else why not."""
    text = ctypes.create_string_buffer(TEXT_BYTES)
    core().slotpool_abi_check(address, text, TEXT_BYTES)
    return decoded(text)


def check_abi_of(library: Path) -> str:
    """As `check_abi`, for a library at a path."""
    text = ctypes.create_string_buffer(TEXT_BYTES)
    core().slotpool_abi_check_library(bytes(library), text, TEXT_BYTES)
    return decoded(text)
