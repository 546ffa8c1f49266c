"""The process that asks llama.cpp: loads a model without allocating anything, makes a context, and says what both would take.

Reads one question from stdin and writes one answer to stdout, both JSON. Ends without tidying up.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import llama_cpp

from slotpool import engine, native
from slotpool.errors import SlotpoolError
from slotpool.reserve.facts import FLASH, KV_TYPES, Wanted

_BREAKDOWN = "_Z26llama_get_memory_breakdownPK13llama_context"
_COMPUTE = re.compile(r"compute buffer size = +([0-9.]+) MiB")
_GRAPH = re.compile(r"nodes = (?:\d+ / )?(\d+), splits = (?:\d+ / )?(\d+)")
_ROUNDING = 1 << 20
"""Bytes by which the log, rounded, may differ from the sum of the breakdown."""
_lines: list[str] = []


def main() -> None:
    """One question, one answer."""
    question = json.loads(sys.stdin.read())
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever the engine prints is no answer
    try:
        answer = _answer(question, Wanted(**question["wanted"]))
    except SlotpoolError as error:
        answer = {"error": str(error)}
    os.write(answers, json.dumps(answer).encode())
    os._exit(0)


def _answer(question: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    llama_cpp.llama_log_set(_callback, ctypes.c_void_p(0))
    for library in question["backends"]:
        if not _ggml("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)(os.fsencode(library)):
            raise SlotpoolError(f"expected a backend, found none: {_reason()}", where=library)
    engine.add_rpc_servers(question["rpc"])
    context = _context(os.fsencode(question["path"]), wanted)
    devices = native.memory.reserved_bytes(_breakdown(), engine.function_address("ggml_backend_load"), context)
    _compare(devices)
    nodes, splits = next((map(int, found) for line in _lines if (found := _graph(line))), (0, 0))
    return {"devices": devices, "n_nodes": nodes, "n_splits": splits}


def _collect(_level: int, text: bytes, _data: object) -> None:
    _lines.append(text.decode("utf-8", "replace"))


_callback = llama_cpp.llama_log_callback(_collect)


def _context(path: bytes, wanted: Wanted) -> int:
    params = llama_cpp.llama_model_default_params()
    params.no_alloc, params.load_mode = True, llama_cpp.LLAMA_LOAD_MODE_NONE
    params.n_gpu_layers = wanted.n_gpu_layers
    if wanted.tensor_split:
        shares = (ctypes.c_float * llama_cpp.llama_max_devices())(*wanted.tensor_split)
        params.tensor_split = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))
    with engine.experts_in_host_memory() as overrides:
        params.tensor_buft_overrides = overrides if wanted.experts_on_host else None
        model = llama_cpp.llama_model_load_from_file(path, params)
    context = llama_cpp.llama_init_from_model(model, _context_params(wanted)) if model else None
    if not context:
        raise SlotpoolError(_reason())
    return int(ctypes.cast(context, ctypes.c_void_p).value or 0)


def _context_params(wanted: Wanted) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = wanted.n_ctx, wanted.n_batch, wanted.n_ubatch, wanted.n_seq
    params.type_k = params.type_v = KV_TYPES[wanted.kv_type]
    params.flash_attn_type = FLASH[wanted.flash]
    return params


def _ggml(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)(engine.function_address(name))


def _breakdown() -> int:
    try:
        return engine.function_address(_BREAKDOWN)
    except AttributeError as error:
        raise SlotpoolError("this llama.cpp does not export how its memory is broken down") from error


def _compare(devices: Sequence[tuple[str, int, int, int]]) -> None:
    """The answer came through a C++ object: what the engine logs must agree with it."""
    logged = sum(int(float(size) * 2**20) for line in _lines for size in _COMPUTE.findall(line))
    said = sum(compute for *_, compute in devices)
    if abs(logged - said) > _ROUNDING:
        raise SlotpoolError(f"llama.cpp's log says {logged} bytes of compute buffers, its breakdown {said}")


def _graph(line: str) -> tuple[str, str] | None:
    found = _GRAPH.search(line)
    return (found[1], found[2]) if found else None


def _reason() -> str:
    words = [line.strip() for line in _lines if line.strip(" .\n")]
    return next((line for line in reversed(words) if "error" in line or "failed" in line), words[-1] if words else "no word")


if __name__ == "__main__":
    main()
