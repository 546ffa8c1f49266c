"""The engine's log: caught while something is loaded, and read for what the engine says nowhere else."""

from __future__ import annotations

import ctypes
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import llama_cpp

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
