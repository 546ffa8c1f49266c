"""What the engine says of itself: versions, how it was built, the cores it may use."""

from __future__ import annotations

import ctypes
import os
from importlib import metadata

import llama_cpp

from slotpool.engine.library import function


def version() -> str:
    """Version of llama-cpp-python."""
    return metadata.version("llama-cpp-python")


def name() -> str:
    """The engine and its version, for files that say who made them."""
    return f"llama-cpp-python {version()}"


def build() -> str:
    """llama.cpp's own version and ggml's version and commit, as the loaded libraries say."""
    llama, ggml, commit = (_text_of(name) for name in ("llama_version", "ggml_version", "ggml_commit"))
    return f"llama.cpp {llama}, ggml {ggml} ({commit})"


def build_flags() -> str:
    """What llama.cpp was built with and found on this processor, as it prints it."""
    return str(llama_cpp.llama_print_system_info().decode("utf-8", "replace")).strip(" |")


def backend_api() -> int:
    """Number of ggml's backend interface that the running engine has."""
    first = function("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)(0)
    return ctypes.c_int.from_address(first).value if first else 0


def _text_of(name: str) -> str:
    try:
        return str(function(name, ctypes.c_char_p)().decode("utf-8", "replace"))
    except AttributeError:  # of another age: what it does not say is not known
        return "unknown"


def n_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
