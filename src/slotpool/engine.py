"""The engine that is installed: llama-cpp-python, the ggml that its libllama loaded, its devices, its log.

Changes nothing in the engine but its log callback, its default model parameters and how it loads, and those only inside a `with`.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from slotpool import native
from slotpool.errors import SlotpoolError, printable, quoted

_ERROR_LEVEL = 4
_CONTINUED_LEVEL = 5
_callbacks: deque[Any] = deque(maxlen=64)
"""The last log callbacks are kept: another thread of the engine may be inside one while it is being replaced. Not all for good: a long
session makes many."""
_open_logs: list[None] = []
"""One for each block within which the engine's log goes to a callback of this module."""
_WEIGHT_BUFFER = re.compile(rb"(\S+) model buffer size = +([0-9.]+) MiB")
_COMPUTE_BUFFER = re.compile(rb"(\S+) compute buffer size = +([0-9.]+) MiB")
_HOST_BUFFER = re.compile(rb"CPU|_Host")
_CONNECT_SECONDS = 5.0
_DEVICE_TYPES = ("CPU", "GPU", "IGPU", "ACCEL", "META")


@dataclass(frozen=True)
class Device:
    """One device as ggml lists it. Memory in bytes; 0 where the device reports none."""

    name: str
    description: str
    type: str
    free_bytes: int
    total_bytes: int


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
    first = _function("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)(0)
    return ctypes.c_int.from_address(first).value if first else 0


def _text_of(name: str) -> str:
    try:
        return str(_function(name, ctypes.c_char_p)().decode("utf-8", "replace"))
    except AttributeError:  # of another age: what it does not say is not known
        return "unknown"


def logits_reader(context: Any, n_vocab: int) -> Callable[[], Any]:
    """A function that waits for the context's last decode and gives the logits of its last output: [n_vocab], float32, a view.

    For loops that are timed: no array is made anew while the engine's buffer stays where it is.
    """
    address_of = _function("llama_get_logits_ith", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
    handle = ctypes.cast(context, ctypes.c_void_p)
    views: dict[int, Any] = {}

    def read() -> Any:
        address = address_of(handle, -1)
        if address not in views:
            views[address] = np.ctypeslib.as_array((ctypes.c_float * n_vocab).from_address(address))
        return views[address]

    return read


def n_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def function_address(name: str) -> int:
    """Address of a function in the ggml that libllama itself loaded; another copy in the process is never looked at."""
    # looked up through libllama's own handle, which finds the ggml that libllama depends on
    return ctypes.cast(getattr(llama_cpp.llama_cpp._lib, name), ctypes.c_void_p).value or 0


def ggml_path() -> Path | None:
    """The file of the ggml that libllama loaded; None where the system does not say."""
    address = function_address("ggml_backend_load")
    return next((file for low, high, file in _mappings() if low <= address < high), None)


def is_mapped(name: str) -> bool:
    """Whether a file whose name begins with `name` is mapped into this process. False where the system has no /proc."""
    return any(file.name.startswith(name) for _, _, file in _mappings())


def ggml_copies() -> list[Path]:
    """The libggml or libggml-base files of which this process has loaded more than one; empty when there is one of each.

    Two registries in a process: a plug-in in the wrong one loads, says so, and is never used.
    """
    files = {file for _, _, file in _mappings()}
    kinds = [[file for file in files if file.name.startswith(prefix)] for prefix in ("libggml.so", "libggml-base.so")]
    return sorted(file for kind in kinds if len(kind) > 1 for file in kind)


def is_core_mapped() -> bool:
    """Whether slotpool's core is in this process at all, loaded by ggml or by anybody else. False where the system has no /proc."""
    return any(file.name == native.CORE_PATH.name for _, _, file in _mappings())


def load_backend(path: str) -> None:
    """Makes ggml load a backend from outside, as GGML_BACKEND_PATH does for llama.cpp's programs. SlotpoolError when it does not come."""
    with captured_log() as lines:
        found = _function("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)(os.fsencode(path))
    if not found:
        raise SlotpoolError(f"expected a backend of ggml, found none: {'; '.join(lines) or 'no word'}", where=printable(path))


def devices() -> list[Device]:
    """The devices of the running ggml, in its order."""
    count = _function("ggml_backend_dev_count", ctypes.c_size_t)()
    return [_device(index) for index in range(count)]


def offload_devices() -> list[str]:
    """Names of the devices that the engine gives layers to when nobody says which: its GPUs. Backends have been loaded by then."""
    return [device.name for device in devices() if device.type in ("GPU", "IGPU")]


def add_rpc_servers(endpoints: Sequence[str]) -> None:
    """Adds the devices of ggml RPC servers, `host:port` each, as llama.cpp's --rpc does; they become RPC0, RPC1...

    Raises SlotpoolError for a server that cannot be reached (the engine would abort) and for an engine without RPC.
    """
    add = _rpc_function("ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p) if endpoints else None
    for endpoint in endpoints:
        _check_reachable(endpoint)
        assert add
        registry = add(endpoint.encode())
        if not registry:
            raise SlotpoolError("expected an RPC server with devices, found one without", where=printable(endpoint))
        _function("ggml_backend_register", None, ctypes.c_void_p)(registry)


def _rpc_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    registry = _function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"RPC")
    find = _function("ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    address = find(registry, name.encode()) if registry else None
    if not address:
        raise SlotpoolError(
            "expected an engine with RPC, found one without",
            where="--rpc",
            do='Install it with CMAKE_ARGS="-DGGML_RPC=ON" pip install --force-reinstall llama-cpp-python.',
        )
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def _check_reachable(endpoint: str) -> None:
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SlotpoolError(f'expected host:port of an RPC server, found "{quoted(endpoint)}"', where="--rpc")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise SlotpoolError(f"expected an RPC server at {printable(endpoint)}, found none: {reason}", where="--rpc") from error


def abi_problem() -> str:
    """Why the core does not fit the running ggml; empty when it fits."""
    return native.check_abi(function_address("ggml_backend_load"))


def register_core() -> None:
    """Makes ggml load the core, once; a session must be open. Raises SlotpoolError, with the core's own words, when it refuses."""
    if native.is_registered() and is_registered():
        return
    if is_registered():
        raise SlotpoolError("expected no other copy of slotpool's core in ggml, found one", do="Unset GGML_BACKEND_PATH.")
    load = _function("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)
    with captured_log() as lines:
        load(os.fsencode(native.CORE_PATH))
    if not (native.is_registered() and is_registered()):
        reason = native.last_error() or "; ".join(lines) or "ggml_backend_load gave no reason"
        raise SlotpoolError(reason, do="slotpool doctor shows what is installed. The pool stays out.")


def is_registered() -> bool:
    """Whether the registry that libllama asks has a slotpool core in it, this one or another copy."""
    return bool(_function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"slotpool"))


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """Collects the engine's error lines instead of printing them, for messages that would otherwise be lost."""
    lines: list[str] = []
    is_ours = bool(_open_logs)

    def collect(level: int, text: bytes, go_on: Callable[[], None]) -> None:
        if level == _ERROR_LEVEL:
            lines.append(text.decode("utf-8", "replace").strip())
        elif level == _CONTINUED_LEVEL and lines:
            lines[-1] += text.decode("utf-8", "replace").rstrip()
        elif is_ours:
            go_on()  # who watches from further out prints nothing either

    with _log_to(collect):
        yield lines


@contextmanager
def weight_buffers() -> Iterator[dict[str, int]]:
    """Collects the sizes of the buffers that a model's weights get within it, bytes by buffer type (`CPU_REPACK` holds what was repacked).

    The engine says them in its log and nowhere else, rounded to hundredths of MiB. What it logs is not printed meanwhile.
    """
    sizes: dict[str, int] = {}

    def watch(_level: int, text: bytes, _go_on: Callable[[], None]) -> None:
        for name, size in _WEIGHT_BUFFER.findall(text):
            key = name.decode("utf-8", "replace")
            sizes[key] = sizes.get(key, 0) + int(float(size) * (1 << 20))

    with _log_to(watch):
        yield sizes


@contextmanager
def compute_buffers() -> Iterator[dict[bytes, int]]:
    """Collects the sizes of the compute buffers in host memory that are made within it, bytes by buffer type.

    The engine says them in its log and nowhere else; of one that is made again the last size counts.
    """
    sizes: dict[bytes, int] = {}

    def watch(_: int, text: bytes, go_on: Callable[[], None]) -> None:
        found = _COMPUTE_BUFFER.findall(text)
        sizes.update((name, int(float(size) * (1 << 20))) for name, size in found if _HOST_BUFFER.search(name))
        go_on()

    with _log_to(watch):
        yield sizes


@contextmanager
def _log_to(collect: Callable[[int, bytes, Callable[[], None]], None]) -> Iterator[None]:
    """Within it the engine's log goes to `collect(level, text, go_on)`; `go_on` hands the text to the callback that was there.

    An interrupt waits until the end of the block: one that is raised inside the callback would be lost in C.
    """
    before, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(before), ctypes.byref(data))
    callback = llama_cpp.llama_log_callback(lambda level, text, _: collect(level, text, lambda: before(level, text, data)))
    _callbacks.append(callback)
    _open_logs.append(None)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    with _interrupt_held():
        try:
            yield
        finally:
            llama_cpp.llama_log_set(before, data)
            _open_logs.pop()


@contextmanager
def _interrupt_held() -> Iterator[None]:
    """Holds SIGINT back and hands it to the handler that was there at the end. Only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, Any]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held and callable(before):
        before(*held[0])


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
    cpu = _function("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"CPU")
    host = _function("ggml_backend_dev_buffer_type", ctypes.c_void_p, ctypes.c_void_p)(cpu)
    which = "" if layers is None else "blk\\.(" + "|".join(map(str, layers)) + ")"
    pattern = which + r"\.ffn_(gate|up|down|gate_up)_(ch|)exps"
    overrides = (_Override * 2)(_Override(pattern.encode(), host), _Override(None, None))
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
    cpu = _function("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"CPU")
    return int(_function("ggml_backend_dev_buffer_type", ctypes.c_void_p, ctypes.c_void_p)(cpu))


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


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    # a prototype of our own leaves the one that llama-cpp-python may have set alone
    return ctypes.CFUNCTYPE(result, *arguments)(function_address(name))


def _device(index: int) -> Device:
    handle = _function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)(index)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    size = ctypes.POINTER(ctypes.c_size_t)
    _function("ggml_backend_dev_memory", None, ctypes.c_void_p, size, size)(handle, free, total)
    kind = _function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(handle)
    return Device(
        name=_function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)(handle).decode(),
        description=_function("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)(handle).decode("utf-8", "replace"),
        type=_DEVICE_TYPES[kind] if kind < len(_DEVICE_TYPES) else f"type {kind}",
        free_bytes=free.value,
        total_bytes=total.value,
    )


def _mappings() -> Iterator[tuple[int, int, Path]]:
    """Address ranges of this process that map a file: low, high, file. Empty where the system has no /proc."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    for line in maps.read_text(errors="surrogateescape").splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5].startswith("/"):
            low, high = (int(edge, 16) for edge in parts[0].split("-"))
            yield low, high, Path(parts[5])
