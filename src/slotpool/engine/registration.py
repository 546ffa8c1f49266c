"""Backends that come from outside: any of ggml's, and slotpool's core."""

from __future__ import annotations

import ctypes
import os

from slotpool import native
from slotpool.engine.library import function, function_address
from slotpool.engine.log import captured_log
from slotpool.errors import SlotpoolError, printable


def load_backend(path: str) -> None:
    """Makes ggml load a backend from outside, as GGML_BACKEND_PATH does for llama.cpp's programs. SlotpoolError when it does not come."""
    with captured_log() as lines:
        found = function("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)(os.fsencode(path))
    if not found:
        raise SlotpoolError(f"expected a backend of ggml, found none: {'; '.join(lines) or 'no word'}", where=printable(path))


def abi_problem() -> str:
    """Why the core does not fit the running ggml; empty when it fits."""
    return native.check_abi(function_address("ggml_backend_load"))


def register_core() -> None:
    """Makes ggml load the core, once; a session must be open. Raises SlotpoolError, with the core's own words, when it refuses."""
    if native.is_registered() and is_registered():
        return
    if is_registered():
        raise SlotpoolError("expected no other copy of slotpool's core in ggml, found one", do="Unset GGML_BACKEND_PATH.")
    load = function("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)
    with captured_log() as lines:
        load(os.fsencode(native.CORE_PATH))
    if not (native.is_registered() and is_registered()):
        reason = native.last_error() or "; ".join(lines) or "ggml_backend_load gave no reason"
        raise SlotpoolError(reason, do="slotpool doctor shows what is installed. The pool stays out.")


def is_registered() -> bool:
    """Whether the registry that libllama asks has a slotpool core in it, this one or another copy."""
    return bool(function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"slotpool"))
