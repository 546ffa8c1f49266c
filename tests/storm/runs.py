"""Runs storms: many evictions under a sanitizer, every step's logits compared with those of plain llama.cpp.

Builds nothing and judges nothing: an Outcome says what happened.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from slotpool import model, page, plan
from testkit import syn

from .built import Built

SPEC = syn.Spec(n_embd=64, n_ff_exp=32, n_expert=32, n_expert_used=4, n_vocab=64)
"""Slabs of 2 KiB and random routing: with few slots nearly every token evicts in every layer. Variants say how many layers."""
SLOTS = 8
TIMEOUT_S = 600
"""Of a run: what takes longer hangs."""
_REPORT = re.compile(
    r"runtime error:|WARNING: ThreadSanitizer|ERROR: (?:Address|Leak)Sanitizer|Sanitizer:DEADLYSIGNAL|Sanitizer: CHECK failed"
)


_SLOW_CPU = {"cpu_ns_per_byte": 20.0}
"""Copies are quick then beside experts on the CPU, so that many are admitted, and evict others."""
_SLOW_LINK = {"link_bytes_per_second": 1e6}
"""With two layers a copy takes longer than a token: one is under way at any time, whoever asks for the expert and whatever ends."""


@dataclass(frozen=True)
class Variant:
    """One way to storm. `devices`: chaos devices with slots, 0 for slots in host memory; `renew`: steps of a context before it is freed."""

    name: str
    misses: str = "copy"
    devices: int = 0
    is_threaded: bool = False
    is_on_disk: bool = False
    is_settled: bool = False
    layers: int = 16
    policy: str = "lru"
    contexts: int = 1
    renew: int = 0
    threads: int = 1
    is_watched: bool = False
    evicts: bool | None = True  # None: as the clock has it
    knobs: Mapping[str, float] = field(default_factory=dict)


VARIANTS = (
    Variant("host", policy="decay"),
    Variant("host, two contexts in two threads, watched", contexts=2, is_watched=True),
    Variant("disk", is_on_disk=True),
    Variant("disk, two contexts in two threads, renewed", is_on_disk=True, contexts=2, renew=20),
    Variant("device, copy", devices=1),
    Variant("threaded device, copy, two contexts in two threads", devices=1, is_threaded=True, contexts=2),
    Variant("device, cpu in the background, renewed, watched", "cpu", 1, renew=10, is_watched=True, knobs=_SLOW_CPU),
    Variant("threaded device, cpu in the background, two contexts, renewed", "cpu", 1, True, contexts=2, renew=10, knobs=_SLOW_CPU),
    Variant("threaded device, cpu, settled, renewed", "cpu", 1, True, is_settled=True, renew=5),
    Variant("threaded device, cpu in the background, slow link, renewed", "cpu", 1, True, layers=2, renew=7, evicts=None, knobs=_SLOW_LINK),
    Variant("device, cpu in the background, slow link, two contexts", "cpu", 1, layers=2, contexts=2, evicts=None, knobs=_SLOW_LINK),
    Variant("device, auto, decay", "auto", 1, policy="decay"),
    Variant("two threaded devices, auto, two contexts, renewed, watched", "auto", 2, True, contexts=2, renew=15, is_watched=True),
    Variant("two threaded devices, auto, two threads a context", "auto", 2, True, threads=2),
    Variant("threaded device, frozen, two contexts", "frozen", 1, True, contexts=2, evicts=False),
)


@dataclass(frozen=True)
class Outcome:
    """What a run said. `logits` by context; `reports` are the sanitizer's, counted; `looks` at the stats page from outside."""

    seconds: float
    returncode: int
    logits: dict[str, list[str]]
    counts: dict[str, int]
    trouble: tuple[str, ...]
    reports: int
    stderr: str
    looks: int = 0


def plan_text(path: Path, variant: Variant) -> str:
    """The plan of a variant, poisoned always."""
    names = [f"CHAOS{i}" for i in range(variant.devices)]
    made = plan.make(
        model.read(path),
        SLOTS,
        policy=variant.policy,
        poison=True,
        devices=names,
        misses=variant.misses,
        rail=0 if names else None,
        ram_budget="auto" if variant.is_on_disk else None,
    )
    return plan.to_text(replace(made, is_settled=variant.is_settled))


def plain(built: Built, path: Path, variant: Variant, seed: int, steps: int) -> Outcome:
    """The same program and tokens without core and devices."""
    return _run([built.program, path, *_options(variant, seed, steps)], _environment())


def pooled(built: Built, path: Path, variant: Variant, seed: int, steps: int) -> Outcome:
    libraries: list[object] = ["--core", built.core]
    if variant.devices:
        libraries += ["--chaos", built.chaos]
    watch = ["--watch", 1] if variant.is_watched else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o700)
        (folder / "plan").write_text(plan_text(path, variant))
        knobs = {"devices": max(variant.devices, 1), "threaded": int(variant.is_threaded)} | dict(variant.knobs)
        known = {f"CHAOS_{knob.upper()}": str(value) for knob, value in knobs.items()}
        env = _environment() | known | {"SLOTPOOL_PLAN": str(folder / "plan"), "XDG_RUNTIME_DIR": name}
        return _run([built.program, path, *_options(variant, seed, steps), *libraries, *watch], env, folder / "slotpool")


def _options(variant: Variant, seed: int, steps: int) -> list[object]:
    return ["--seed", seed, "--steps", steps, "--contexts", variant.contexts, "--renew", variant.renew, "--threads", variant.threads]


def _environment() -> dict[str, str]:
    """Nothing is suppressed: neither the engine nor we have anything to hide so far."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("CHAOS_", "GGML_", "SLOTPOOL_", "LLAMA_"))}
    return kept | {
        "GGML_NO_BACKTRACE": "1",
        "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "second_deadlock_stack=1:history_size=4",
    }


def _run(command: list[object], env: Mapping[str, str], pages: Path | None = None) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        with _started(command, env, out, err) as process:
            looks, problems = _look(process, pages, began + TIMEOUT_S)
        out.seek(0)
        err.seek(0)
        return _outcome(time.monotonic() - began, process.returncode, out.read(), err.read(), looks, problems)


@contextmanager
def _started(command: list[object], env: Mapping[str, str], out: object, err: object) -> Iterator[subprocess.Popen[str]]:
    process: subprocess.Popen[str] = subprocess.Popen(list(map(str, command)), stdout=out, stderr=err, env=env, text=True)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _look(process: subprocess.Popen[str], folder: Path | None, until: float) -> tuple[int, list[str]]:
    """Reads the stats page in `folder` from outside until the process ends, or has to. Counters never go back."""
    looks, before, problems = 0, 0, []
    while process.poll() is None:
        if time.monotonic() > until:
            process.kill()
            process.wait()
            problems.append(f"did not end within {TIMEOUT_S} s")
        found = page.look([folder] if folder else [])
        problems += found.problems
        for one in found.pages:
            looks += 1
            evicted = sum(group.evicted for group in one.counts)
            if evicted < before:
                problems.append(f"evicted went from {before} to {evicted}")
            before = evicted
        time.sleep(0.05)
    return looks, problems


def _outcome(seconds: float, code: int, out: str, err: str, looks: int, problems: list[str]) -> Outcome:
    logits: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    trouble = list(problems)
    for line in out.splitlines():
        kind, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        if kind == "logits":
            logits.setdefault(name, []).append(value)
        elif kind == "count":
            counts[name] = int(value)
        elif rest.strip():
            trouble.append(line)
    return Outcome(seconds, code, logits, counts, tuple(trouble), len(_REPORT.findall(err)), err, looks)
