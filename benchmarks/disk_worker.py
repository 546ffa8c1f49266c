"""One run of one arm in a process and a memory control group of its own: load, prompt, generate; and how to ask for it.

Measures; what the numbers mean is `disk_tier`'s. Answers one JSON document. A phase is {"seconds", "read_bytes" (from storage),
"major_faults", and of the pool "lookups", "hits", "bytes_copied", "wait_ms"}; `times` are seconds per generated token.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from benchmarks import cgroup
from slotpool import engine, loading


@dataclass(frozen=True)
class Arm:
    """One contestant under one cap (0: none)."""

    name: str
    cap: int
    options: dict[str, Any]
    load_mode: int | None = None

    @property
    def is_pool(self) -> bool:
        return bool(self.options["slots"])


def measure(model: Path, arm: Arm, passes: Sequence[Mapping[str, Any]], limit: int | None, timeout: float) -> dict[str, Any]:
    """Runs a worker in a new group with a limit of `limit` bytes and returns its answer, with `peak_bytes`, `limit_met`, `failed`.

    `passes` are what `_pass` gets, one after the other. `failed` is why the run does not count: a worker that the limit killed, one
    that is not done after `timeout` seconds, one that did not do what its arm's name says; else empty.
    """
    with cgroup.group(limit) as group:
        order = json.dumps({"load": arm.options, "load_mode": arm.load_mode, "passes": passes, "group": str(group.path)})
        ended = group.run([sys.executable, "-m", "benchmarks.disk_worker", str(model), order], timeout)
        facts = {"peak_bytes": group.peak, "limit_met": group.n_failures}
        failed = _why_failed(ended, group.n_kills, timeout)
    if failed:
        return facts | {"failed": failed}
    answer: dict[str, Any] = json.loads(ended.output)
    return answer | facts | {"failed": _why_void(answer, arm, model.stat().st_size)}


def _why_failed(ended: cgroup.Ended, n_kills: int, timeout: float) -> str:
    if ended.is_late:
        return f"stopped: not done after {timeout:.0f} s"
    if ended.code < 0:
        return f"killed: signal {-ended.code}, oom_kill {n_kills} in its group"
    last = ended.errors.strip().splitlines()[-1:] or ["nothing on stderr"]
    return f"exit code {ended.code}: {last[0]}" if ended.code else ""


def _why_void(answer: dict[str, Any], arm: Arm, size: int) -> str:
    """Why a run proves nothing: wrong tokens, a pool that was not one, or a page cache that was not empty."""
    for one in answer["passes"]:
        wanted = list(range(one["first"] + one["n_prompt"], one["first"] + one["n_prompt"] + len(one["tokens"])))
        if one["tokens"] != wanted:
            return f"void: expected tokens {wanted[:3]}..., found {one['tokens'][:3]}..."
    stats = answer["stats"]
    if bool(stats["lookups"]) != arm.is_pool or stats["refused"] or (arm.is_pool and stats["store"] != "disk"):
        return f"void: {stats['lookups']} lookups, {stats['refused']} refused, store {stats['store']}"
    read = answer["load"]["read_bytes"] + answer["passes"][0]["prompt"]["read_bytes"]
    if not arm.is_pool and read < 0.9 * size:
        return f"void: expected the file ({size} bytes) read from disk, found {read}: it was cached"
    phases = [one[phase] for one in answer["passes"] for phase in ("prompt", "cold", "steady")]
    copied, read = (sum(phase[name] for phase in phases) for name in ("bytes_copied", "read_bytes"))
    if read < 0.98 * copied:
        return f"void: expected the {copied} bytes of the misses read from disk, found {read}: they were cached"
    return ""


# ---- in the worker ----


def main(model: str, order: dict[str, Any]) -> None:
    """One run, from loading to the answer on stdout."""
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    started = _mark(None)
    with _load_mode(order["load_mode"]), engine.weight_buffers() as buffers:
        llm = loading.load(model, **order["load"])
    loaded = _mark(llm)
    passes = [_pass(llm, **one) for one in order["passes"]]
    answer = {
        "load": _phase(started, loaded),
        "passes": passes,
        "memory": cgroup.Group(Path(order["group"]), cgroup.where()[1]).split(),
        "stats": _without_tensors(loading.read_stats(llm)),
        "repacked_bytes": buffers.get("CPU_REPACK", 0) + loading.read_stats(llm)["repacked_bytes"],
    }
    print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # freeing gigabytes is nobody's time


def _pass(
    llm: Any, *, first: int, n_prompt: int, n_generated: int, n_warm: int, n_least: int, seconds: float, cover: Sequence[int] = ()
) -> dict[str, Any]:
    """The prompt of `n_prompt` tokens from `first` on, then greedy generation, split after `n_warm` tokens.

    Past `seconds` of it generation ends, but not before `n_least` tokens. `hashes` are of the logits after the prompt, after the warm
    tokens and after the last. `cover` is decoded beforehand, token by token, unmeasured.
    """
    llm.reset()
    for token in cover:
        llm.eval([token])
    llm.reset()
    marks, hashes = [_mark(llm)], []
    llm.eval(list(range(first, first + n_prompt)))
    tokens = [_best(llm)]
    marks.append(_mark(llm))
    times: list[float] = []
    for end in (n_warm, n_generated):
        hashes.append(_hash(llm))
        while len(times) < end and (len(times) < n_least or sum(times) < seconds):
            started = time.perf_counter()
            llm.eval([tokens[-1]])
            tokens.append(_best(llm))
            times.append(time.perf_counter() - started)
        marks.append(_mark(llm))
    hashes.append(_hash(llm))
    phases = dict(zip(("prompt", "cold", "steady"), map(_phase, marks, marks[1:]), strict=False))
    asked = {"first": first, "n_prompt": n_prompt}
    return {**asked, **phases, "n_warm": min(n_warm, len(times)), "times": times, "tokens": tokens, "hashes": hashes}


@contextmanager
def _load_mode(mode: int | None) -> Iterator[None]:
    """Within it, llama_cpp.Llama loads with llama.cpp's load mode `mode`: its keywords reach two of them only."""
    load = llama_cpp.llama_cpp.llama_model_load_from_file

    def changed(path: bytes, params: Any) -> Any:
        params.load_mode = mode
        return load(path, params)

    if mode is not None:
        llama_cpp.llama_cpp.llama_model_load_from_file = changed
    yield
    llama_cpp.llama_cpp.llama_model_load_from_file = load


def _mark(llm: Any) -> dict[str, float]:
    """Counters as they are now."""
    stats = loading.read_stats(llm) if llm else None
    pool = {name: stats[name] if stats else 0 for name in ("lookups", "hits", "bytes_copied")}
    wait_ms = stats["prompt"]["wait_ms"] + stats["generation"]["wait_ms"] if stats else 0.0
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    counters = {"read_bytes": int(io["read_bytes"]), "major_faults": usage.ru_majflt, **pool, "wait_ms": wait_ms}
    return {"seconds": time.perf_counter(), **counters}


def _phase(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in after}


def _logits(llm: Any) -> NDArray[np.float32]:
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llm.ctx, -1), shape=(llm.n_vocab(),))


def _best(llm: Any) -> int:
    return int(_logits(llm).argmax())


def _hash(llm: Any) -> str:
    return hashlib.sha256(_logits(llm).tobytes()).hexdigest()[:16]


def _without_tensors(stats: Any) -> dict[str, Any]:
    """The pool's document without its lists, which are long; slots as the layers have them, fewest and most."""
    slots = [layer["slots"] for layer in stats["layers"]]
    kept = {name: value for name, value in stats.items() if name not in ("layers", "tensors")}
    return kept | {"slots": [min(slots), max(slots)] if slots else []}


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
