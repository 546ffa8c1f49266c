"""How llama_cpp.Llama loads where its keywords do not reach: defaults of its parameters, where tensors go, what is mapped.

All of it only inside a `with`, and for the thread that opened it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import llama_cpp

from slotpool.engine.library import function


def model_defaults(**fields: Any) -> AbstractContextManager[None]:
    """Within it, this thread's llama_cpp.Llama starts from model parameters with `fields` set: for what its keywords do not reach.

    Not to be open twice at a time. `use_extra_bufts=False` keeps the CPU's experts in the file's layout instead of a repacked one.
    """
    return _defaults("llama_model_default_params", fields)


@contextmanager
def devices_hidden() -> Iterator[None]:
    """Within it, this thread's llama_cpp.Llama sees no GPU at all: it takes no memory there, and offloads no prompt either."""
    nothing = (ctypes.c_void_p * 1)()
    with model_defaults(devices=ctypes.cast(nothing, ctypes.c_void_p).value):
        yield


def context_defaults(**fields: Any) -> AbstractContextManager[None]:
    """Within it, this thread's llama_cpp.Llama starts from context parameters with `fields` set: several sequences, for instance.

    Not to be open twice at a time.
    """
    return _defaults("llama_context_default_params", fields)


@contextmanager
def _defaults(function: str, fields: Mapping[str, Any]) -> Iterator[None]:
    make = getattr(llama_cpp.llama_cpp, function)
    here = threading.get_ident()

    def changed() -> Any:
        params = make()
        for name, value in fields.items() if threading.get_ident() == here else ():
            setattr(params, name, value)
        return params

    setattr(llama_cpp.llama_cpp, function, changed)
    try:
        yield
    finally:
        setattr(llama_cpp.llama_cpp, function, make)


class _Override(ctypes.Structure):
    """A pattern of tensor names and the buffer type of what it matches; the last has none."""

    _fields_ = (("pattern", ctypes.c_char_p), ("type", ctypes.c_void_p))


@contextmanager
def experts_in_host_memory(layers: Sequence[int] | None = None) -> Iterator[int]:
    """The address for the model parameter `tensor_buft_overrides`, good within it, that leaves experts in ordinary host memory: of these
    layers, or of all."""
    which = "" if layers is None else "blk\\.(" + "|".join(map(str, layers)) + ")"
    pattern = which + r"\.ffn_(gate|up|down|gate_up)_(ch|)exps"
    overrides = (_Override * 2)(_Override(pattern.encode(), _host_buffer_type()), _Override(None, None))
    yield ctypes.addressof(overrides)


@contextmanager
def kept_on_host(pattern: str) -> Iterator[None]:
    """Within it, this thread's llama_cpp.Llama keeps tensors whose names `pattern` finds in the CPU's memory, as `-ot PATTERN=CPU` does.

    Not to be open twice at a time.
    """
    overrides = (_Override * 2)(_Override(pattern.encode(), _host_buffer_type()), _Override(None, None))
    with model_defaults(tensor_buft_overrides=ctypes.cast(overrides, ctypes.c_void_p)):
        yield


def _host_buffer_type() -> int:
    cpu = function("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"CPU")
    return int(function("ggml_backend_dev_buffer_type", ctypes.c_void_p, ctypes.c_void_p)(cpu))


@contextmanager
def loading_unmapped() -> Iterator[None]:
    """Within it, this thread's llama_cpp.Llama loads by direct reads, past the page cache, whatever its `use_mmap` says.

    Mapping would read the whole file (MAP_POPULATE). Where memory is to be locked, reads go through the page cache: the engine cannot
    do both. Not to be open twice at a time.
    """
    load = llama_cpp.llama_cpp.llama_model_load_from_file
    here = threading.get_ident()

    def load_unmapped(path: bytes, params: Any) -> Any:
        return load(path, _without_mapping(params) if threading.get_ident() == here else params)

    llama_cpp.llama_cpp.llama_model_load_from_file = load_unmapped
    try:
        yield
    finally:
        llama_cpp.llama_cpp.llama_model_load_from_file = load


def _without_mapping(params: Any) -> Any:
    """A copy of model parameters that maps nothing; memory is locked as was asked for. Pointers in it are kept alive by `params`."""
    copy = type(params).from_buffer_copy(params)
    locks = (llama_cpp.LLAMA_LOAD_MODE_MLOCK, llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK)
    copy.load_mode = llama_cpp.LLAMA_LOAD_MODE_MLOCK if params.load_mode in locks else llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO
    return copy
