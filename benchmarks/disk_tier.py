"""Experts on disk: a model larger than its memory against plain llama.cpp in the same memory, and both where all of it fits.

A SYN model of 7.1 GB with the shapes of gpt-oss-20b replays that model's real routing while it decodes. Each run is a fresh process
in a memory control group of half, or a third, of the file, the page cache dropped before; arms take turns.

Reach, under each cap: generation after 64 tokens >= 0.8 of min(compute with everything resident, disk speed / missed bytes per
token), and at half the file 25x of plain where that bound allows it; a prompt >= 3x of plain and >= 0.8 of its own bound (compute
alone, or the file once at disk speed). With no cap: >= 0.98x of plain once warm, and a cold start no slower.

The pool is as users get it: experts repacked in their slots as plain llama.cpp repacks them; under the caps beside it one whose slots
are as the file is.

Disk speed is measured right before and after each run, and a bound is that of its own round. Compute is that of the fastest resident
arm, repacked or not; the share `in_layout` is of plain llama.cpp that repacks nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llama_cpp import LLAMA_LOAD_MODE_DIRECT_IO, LLAMA_LOAD_MODE_NONE

from benchmarks import cgroup, disk_speed, disk_worker, record
from benchmarks.disk_figures import cap_name, disk_of, figures, line, speeds, unequal_logits
from benchmarks.disk_worker import Arm
from benchmarks.replay_model import cover, read_trace, say, written
from slotpool import engine, machine
from testkit import syn

SPEC = syn.Spec(
    arch="gpt-oss",
    n_layer=24,
    n_embd=2880,
    n_ff_exp=1856,
    n_expert=32,
    n_expert_used=4,
    n_vocab=2880,
    n_head=45,
    n_head_kv=9,
    n_ctx=4096,
    types={"*": "MXFP4"},
    dense_type="Q8_0",
)
TIMEOUT = 900.0
"""Seconds after which a run is given up."""
PLAIN_TIMEOUT = 420.0
"""The same of plain llama.cpp under a cap, which may read the file again and again before its first token."""


@dataclass(frozen=True)
class Setup:
    """What is run: counts of tokens, and of rounds by kind of arm. A cap is the file's size over one of `caps`, plus `extra_bytes`; under
    one, arms that `without` names are left out.

    Plain arms under a cap generate `n_least` tokens, and more while `plain_seconds` last. Every arm runs once; a further run that
    would not end within `minutes` is left out.
    """

    spec: syn.Spec = SPEC
    caps: Sequence[int] = (2, 3)
    extra_bytes: int = 0
    rounds: int = 5
    plain_rounds: int = 2
    resident_rounds: int = 2
    n_prompt: int = 512
    n_generated: int = 300
    n_resident: int = 128
    n_warm: int = 64
    n_least: int = 72
    plain_seconds: float = 120.0
    minutes: float = 34.0
    threads: int = field(default_factory=engine.n_cores)
    without: Sequence[str] = ()


QUICK = Setup(
    spec=replace(SPEC, n_embd=960, n_ff_exp=256, n_vocab=960, n_head=15, n_head_kv=3, n_ctx=1024),
    caps=(2,),
    extra_bytes=160 * 2**20,
    rounds=2,
    plain_rounds=1,
    resident_rounds=1,
    n_prompt=128,
    n_generated=80,
    n_resident=40,
    n_warm=16,
    n_least=24,
    plain_seconds=5.0,
    threads=1,
)
"""Tries the benchmark itself, on 300 MB in about a minute; a cap leaves room for what a process needs without a model. Leaves no record."""


def arms(setup: Setup, cap: int) -> list[Arm]:
    """The arms under a cap; without one, the two load modes that put everything into memory anyway are left out."""
    common = {"n_ctx": 1024, "n_threads": setup.threads, "n_threads_batch": setup.threads}
    plain = {"slots": 0, "repack": False, **common}
    found = [
        Arm("pool", cap, {"slots": "auto", "ram_budget": "auto", **common}),
        Arm("plain", cap, plain),
        Arm("plain, repacked", cap, {**plain, "repack": True}),
    ]
    if cap:
        found.append(Arm("pool, not repacked", cap, {"slots": "auto", "ram_budget": "auto", "repack": False, **common}))
        found.append(Arm("plain, load mode none", cap, plain, LLAMA_LOAD_MODE_NONE))
        found.append(Arm("plain, load mode direct", cap, plain, LLAMA_LOAD_MODE_DIRECT_IO))
    return [arm for arm in found if not cap or arm.name not in setup.without]


def run(setup: Setup | None = None) -> dict[str, Any]:
    """Measures, writes the record and returns it. Raises SkippedError where the machine cannot do it."""
    setup = setup or Setup()
    with cgroup.group(None):
        cgroup.drop_caches()
    trace = read_trace(setup.spec.n_vocab)
    model = written(setup.spec, trace)
    size = model.stat().st_size
    _check_memory(size)
    samples = _sample_all(setup, model, cover(trace))
    facts: dict[str, Any] = {"setup": repr(setup), "file_bytes": size, "figures": figures(samples, setup.caps, size)}
    facts |= {"unequal_logits": unequal_logits(samples), "samples": samples}
    return facts if setup.spec != SPEC else record.write("disk_tier", **facts)


def _check_memory(size: int) -> None:
    needed, found = 1.2 * size, machine.read().ram_available
    if found < needed:
        raise cgroup.SkippedError(f"expected {needed / 1e9:.1f} GB of free memory, for the arms with no cap, found {found / 1e9:.1f} GB")


# ---- the runs ----


def _sample_all(setup: Setup, model: Path, tokens: Sequence[int]) -> list[dict[str, Any]]:
    pieces, todo = disk_speed.slabs(model), list(_schedule(setup))
    samples: list[dict[str, Any]] = []
    started = time.monotonic()
    for number, (round_, arm) in enumerate(todo, 1):
        passed = time.monotonic() - started
        where = f"[{number}/{len(todo)}, {passed:.0f} s] round {round_ + 1}, {cap_name(arm.cap)}: {arm.name}"
        why_not = _why_not(arm, samples, 60 * setup.minutes - passed)
        if not why_not:
            samples.append(_sample(setup, model, pieces, tokens, round_, arm))
            samples[-1]["run_seconds"] = time.monotonic() - started - passed
        say(f"{where}: {why_not or _result(samples[-1])}")
    return samples


def _schedule(setup: Setup) -> Iterator[tuple[int, Arm]]:
    """Rounds of all arms, every other one backwards. An arm with fewer rounds than others has its first and last with them."""
    n_rounds = max(setup.rounds, setup.plain_rounds, setup.resident_rounds)
    for round_ in range(n_rounds):
        contestants = [arm for cap in (0, *setup.caps) for arm in arms(setup, cap) if round_ in _rounds(setup, arm, n_rounds)]
        yield from ((round_, arm) for arm in (contestants if round_ % 2 == 0 else reversed(contestants)))


def _rounds(setup: Setup, arm: Arm, n_rounds: int) -> set[int]:
    mine = setup.resident_rounds if not arm.cap else setup.rounds if arm.name == "pool" else setup.plain_rounds
    return {number * (n_rounds - 1) // max(1, mine - 1) for number in range(mine)}


def _why_not(arm: Arm, samples: Sequence[dict[str, Any]], left: float) -> str:
    """Why a run is left out: the limit killed the arm before, or its last run took longer than the seconds that are left."""
    before = [one for one in samples if (one["arm"], one["cap"]) == (arm.name, arm.cap)]
    if any(one["failed"].startswith("killed") for one in before):
        return "was killed before, not tried again"
    return "left out: no time for it" if before and before[-1]["run_seconds"] > left else ""


def _sample(setup: Setup, model: Path, pieces: Sequence[disk_speed.Piece], tokens: Sequence[int], round_: int, arm: Arm) -> dict[str, Any]:
    """One run, with the disk's speed before and after it, and why it does not count, if so (`failed`)."""
    n_used = setup.n_prompt + setup.n_generated
    first = round_ * (setup.spec.n_vocab - n_used) // max(1, setup.rounds)  # other tokens in every round
    limit = model.stat().st_size // arm.cap + setup.extra_bytes if arm.cap else None
    before = disk_speed.measure(model, pieces)
    cgroup.drop_caches()
    timeout = PLAIN_TIMEOUT if arm.cap and not arm.is_pool else TIMEOUT
    answer = disk_worker.measure(model, arm, _passes(setup, arm, first, tokens), limit, timeout)
    speeds = [before, disk_speed.measure(model, pieces)]
    return {"arm": arm.name, "cap": arm.cap, "round": round_, "limit": limit, "disk": speeds, **answer}


def _passes(setup: Setup, arm: Arm, first: int, tokens: Sequence[int]) -> list[dict[str, Any]]:
    """A cold pass, and where nothing is capped a warm one after it: every expert has then been used once."""
    n_generated = setup.n_generated if arm.cap else setup.n_resident
    seconds = TIMEOUT if arm.is_pool or not arm.cap else setup.plain_seconds
    cold: dict[str, Any] = {"first": first, "n_prompt": setup.n_prompt, "n_generated": n_generated, "n_warm": setup.n_warm}
    cold |= {"n_least": setup.n_least, "seconds": seconds}
    return [cold] if arm.cap else [cold, {**cold, "cover": list(tokens)}]


def _result(sample: dict[str, Any]) -> str:
    if sample["failed"]:
        return str(sample["failed"])
    found = speeds(sample)
    return (
        f"{found['steady_tps']:.2f} tokens/s ({found['n_steady']} tokens), prompt {found['prompt_tps']:.1f}, first token after "
        f"{found['ttft_seconds']:.1f} s, disk {disk_of(sample) / 1e9:.2f} GB/s"
    )


def main() -> None:
    """`python -m benchmarks.disk_tier`, with options for a shorter run."""
    parser = argparse.ArgumentParser(description="Experts on disk against plain llama.cpp, in too little memory and in enough.")
    parser.add_argument("--quick", action="store_true", help="try the benchmark itself on a small model; leaves no record")
    parser.add_argument("--rounds", type=int, help="rounds of the pool under a cap")
    parser.add_argument("--plain-rounds", type=int, help="rounds of plain llama.cpp under a cap")
    parser.add_argument("--resident-rounds", type=int, help="rounds with no cap")
    parser.add_argument("--caps", type=int, nargs="+", help="memory as parts of the file: 2 is a half")
    parser.add_argument("--without", nargs="+", help="arms to leave out under a cap, by name: those that it is known to kill")
    parser.add_argument("--minutes", type=float, help="time for all of it")
    parser.add_argument("--threads", type=int)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    setup = replace(QUICK if given.pop("quick") else Setup(), **given)
    try:
        print(line(run(setup)))
    except cgroup.SkippedError as reason:
        print(f"disk_tier: skipped: {reason}")


if __name__ == "__main__":
    main()
