"""The process of an arm, `python -m slotpool.bench.worker`: loads as the arm says, reads the round's text, measures, says what it was.

One job on stdin, one answer on stdout, both JSON; nothing is compared here. What is timed is llama.cpp's own decode and the choice of the
most likely token, nothing else. Generation is given its tokens, from the text: all arms compute the same, and none can fall into a loop
whose experts are always there.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import llama_cpp
import psutil

from slotpool import engine, loading, model, plan
from slotpool.bench.arms import BYPASS, PLAIN
from slotpool.bench.text import Window
from slotpool.errors import REFUSED, SlotpoolError
from slotpool.page_cache import cached_share

_BATCH = 512
_COUNTED = ("lookups", "hits", "misses", "bytes_copied", "bytes_saved")


def main() -> None:
    """One job, one answer. Whatever else is printed goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    try:
        job = json.loads(sys.stdin.buffer.read())
        answer = tokens_of(job) if "text" in job else measured(job)
    except SlotpoolError as error:
        answer = {"error": {"message": str(error), "do": "", "exit_code": error.exit_code}}
    print(json.dumps(answer), file=answers, flush=True)


def tokens_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """The ids of a text, what a sequence of this model begins with (BOS, or nothing), and the devices that a pool is on unless told."""
    llm = loading.load(job["model"], slots=0, vocab_only=True)
    ids = llm.tokenize(job["text"].encode("utf-8", "surrogateescape"), add_bos=False, special=False)
    begin = llm.tokenize(b"", add_bos=True, special=False)
    engine.add_rpc_servers(job["rpc"])
    return {"tokens": ids, "begin": begin, "devices": engine.offload_devices()}


def measured(job: Mapping[str, Any]) -> dict[str, Any]:
    """One round of one arm."""
    window = Window(**{name: tuple(ids) for name, ids in job["window"].items()})
    cached = cached_share(file.path for file in model.read(job["model"]).files)
    started = time.perf_counter()
    llm, buffers = _loaded(job)
    load_ms = 1000 * (time.perf_counter() - started)
    steps = Steps(llm)
    if job["kind"] == BYPASS:
        steps.read([*window.prompt[:2]])  # two tokens: the ubatch that allocates the slots
        steps.rewind(0)
    found = _cold(steps, llm, job["begin"], window) if not window.first else _warm(steps, llm, job["begin"], window)
    return {**found, **_facts(job, llm, buffers, window), "cached_share": cached, "load_ms": load_ms, "logits": steps.digest()}


def _loaded(job: Mapping[str, Any]) -> tuple[loading.PooledLlama, dict[str, int]]:
    options = {"n_batch": _BATCH, "n_ubatch": _BATCH, **job["options"]}
    if job["kind"] == PLAIN:
        options["slots"] = 0
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        buffers = stack.enter_context(engine.weight_buffers())
        if job["on_host"]:
            stack.enter_context(engine.kept_on_host(job["on_host"]))
        return loading.load(job["model"], **options), buffers


class Steps:
    """A context with one sequence: reads tokens, forgets some, chooses the most likely next one."""

    def __init__(self, llm: loading.PooledLlama) -> None:
        self._llm, self._context = llm, llm._ctx.ctx
        self._logits = engine.logits_reader(self._context, llm.n_vocab())
        self._ids = (llama_cpp.llama_token * _BATCH)()

    def read(self, tokens: Sequence[int]) -> None:
        """Prompt tokens, in batches; the last one has logits."""
        for start in range(0, len(tokens), _BATCH):
            part = tokens[start : start + _BATCH]
            self._ids[: len(part)] = part
            # positions follow what the context has; the last token gets logits
            if status := llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(self._ids, len(part))):
                raise self._failure(len(part), status)

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """Tokens one at a time, as generation decodes; after each the most likely next one."""
        ids, one, context, logits, best = self._ids, llama_cpp.llama_batch_get_one(self._ids, 1), self._context, self._logits, []
        for token in tokens:
            ids[0] = token
            if status := llama_cpp.llama_decode(context, one):
                raise self._failure(1, status)
            best.append(logits().argmax())
        return [int(token) for token in best]

    def best(self) -> int:
        """The most likely next token."""
        return int(self._logits().argmax())

    def digest(self) -> str:
        """Of the bits of the last logits."""
        return hashlib.sha256(self._logits().tobytes()).hexdigest()

    def rewind(self, n_kept: int) -> None:
        """Forgets all but the first tokens. SlotpoolError where the model's memory cannot."""
        memory = llama_cpp.llama_get_memory(self._context)
        if not n_kept:
            llama_cpp.llama_memory_clear(memory, True)
        elif not llama_cpp.llama_memory_seq_rm(memory, 0, n_kept, -1):
            raise SlotpoolError(
                "expected a model whose context can be cut back, found one that cannot", where="--depth", do="Try --warm 0."
            )

    def _failure(self, n_tokens: int, status: int) -> SlotpoolError:
        session = self._llm.slotpool_session
        reason = session.take_failure() if session else ""
        return SlotpoolError(reason or f"the engine could not decode {n_tokens} tokens (llama_decode gave {status})", exit_code=REFUSED)


def _cold(steps: Steps, llm: loading.PooledLlama, begin: Sequence[int], window: Window) -> dict[str, Any]:
    """The first request of a process: nothing is in the pool yet."""
    times = [time.perf_counter()]
    if before := [*begin, *window.before]:
        steps.read(before)
    times.append(time.perf_counter())
    steps.read(window.prompt)
    first = steps.best()
    times.append(time.perf_counter())
    found = _generated(steps, llm, window)
    return found | _speeds(window, times[2] - times[0], times[2] - times[1], first)


def _warm(steps: Steps, llm: loading.PooledLlama, begin: Sequence[int], window: Window) -> dict[str, Any]:
    """The first request, and text that the pool learns from; then another prompt, and what follows it, are measured."""
    before = [*begin, *window.before]
    started = time.perf_counter()
    steps.read([*before, *window.first])
    steps.best()
    ttft = time.perf_counter() - started
    steps.follow(window.warm)
    steps.rewind(len(before))
    started = time.perf_counter()
    steps.read(window.prompt)
    first = steps.best()
    seconds = time.perf_counter() - started
    return _generated(steps, llm, window) | _speeds(window, ttft, seconds, first)


def _speeds(window: Window, ttft: float, seconds: float, first: int) -> dict[str, Any]:
    return {"ttft_ms": 1000 * ttft, "prompt_tps": len(window.prompt) / seconds, "first_token": first}


def _generated(steps: Steps, llm: loading.PooledLlama, window: Window) -> dict[str, Any]:
    before = loading.read_stats(llm)
    started = time.perf_counter()
    best = steps.follow(window.generate)
    seconds = time.perf_counter() - started
    after = loading.read_stats(llm)
    counted: dict[str, Any] = {name: after["generation"][name] - before["generation"][name] for name in _COUNTED}  # type: ignore[literal-required]
    counted |= {name: after[name] - before[name] for name in ("refused", "admitted", "evicted")}
    return {"generation_tps": len(window.generate) / seconds, "best_tokens": best, "generation": counted}


def _facts(job: Mapping[str, Any], llm: loading.PooledLlama, buffers: Mapping[str, int], window: Window) -> dict[str, Any]:
    """Who this process was."""
    text = plan.to_text(llm.slotpool_plan)
    return {
        "process": os.getpid(),
        "kind": job["kind"],
        "digest": window.digest,
        "engine": {"package": engine.name(), "build": engine.build(), "flags": engine.build_flags(), "ggml": _ggml_digest()},
        "plan": hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(),
        "stats": loading.read_stats(llm),
        "is_core_registered": engine.is_registered(),
        "is_core_mapped": engine.is_mapped("libslotpool"),
        "buffers": dict(buffers),
        "free_bytes": _free(),
        "resident_bytes": psutil.Process().memory_info().rss,
    }


def _ggml_digest() -> str:
    """Of the ggml file that this process runs: two builds of one version are two engines."""
    path = engine.ggml_path()
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path else "unknown"


def _free() -> dict[str, int]:
    devices = {one.name: one.free_bytes for one in engine.devices() if one.type in ("GPU", "IGPU")}
    return {"RAM": psutil.virtual_memory().available, **devices}


if __name__ == "__main__":
    main()
