"""Experts on disk: a model larger than its memory against plain llama.cpp in the same memory, and both where all of it fits.

A SYN model of 7.1 GB with the shapes of gpt-oss-20b replays that model's real routing while it decodes. Each run is a fresh process
in a memory control group of half, or a third, of the file, the page cache dropped before; arms take turns.

Reach, under each cap: generation after 64 tokens >= 0.8 of min(compute with everything resident, disk speed / missed bytes per
token), and at half the file 25x of plain where that bound allows it; a prompt >= 3x of plain and >= 0.8 of its own bound (compute
alone, or the file once at disk speed). With no cap: >= 0.98x of plain once warm, and a cold start no slower.

Disk speed is measured right before and after each run, and a bound is that of its own round. Compute is that of the fastest resident
arm, repacked or not; the share `in_layout` leaves the repacked one out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import environ
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from llama_cpp import LLAMA_LOAD_MODE_DIRECT_IO, LLAMA_LOAD_MODE_NONE
from numpy.typing import NDArray

from benchmarks import cgroup, disk_speed, disk_worker, record
from benchmarks.disk_worker import Arm
from slotpool import engine, machine
from testkit import syn

TRACE = Path(__file__).parents[2] / "shared/traces/gpt-oss-20b/gptoss20b_decode_trace.npz"
FIRST_EXAMPLE = 247
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
_IN_LAYOUT = ("pool", "plain")
"""Arms that compute with experts as the file has them."""
TIMEOUT = 900.0
"""Seconds after which a run is given up."""


@dataclass(frozen=True)
class Setup:
    """What is run: counts of tokens, and of rounds by kind of arm. A cap is the file's size over one of `caps`, plus `extra_bytes`.

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
    n_least: int = 80
    plain_seconds: float = 120.0
    minutes: float = 34.0
    threads: int = field(default_factory=engine.n_cores)


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
        Arm("pool", cap, {"slots": "auto", "ram_budget": "auto", "repack": False, **common}),
        Arm("plain", cap, plain),
        Arm("plain, repacked", cap, {**plain, "repack": True}, is_exact=False),
    ]
    if cap:
        found.append(Arm("plain, load mode none", cap, plain, LLAMA_LOAD_MODE_NONE))
        found.append(Arm("plain, load mode direct", cap, plain, LLAMA_LOAD_MODE_DIRECT_IO))
    return found


def run(setup: Setup | None = None) -> dict[str, Any]:
    """Measures, writes the record and returns it. Raises SkippedError where the machine cannot do it."""
    setup = setup or Setup()
    with cgroup.group(None):
        cgroup.drop_caches()
    trace = read_trace(setup.spec.n_vocab)
    model = _model(setup.spec, trace)
    size = model.stat().st_size
    _check_memory(size)
    samples = _sample_all(setup, model, cover(trace))
    facts: dict[str, Any] = {"setup": repr(setup), "file_bytes": size, "figures": figures(samples, setup, size)}
    facts |= {"unequal_logits": unequal_logits(samples), "samples": samples}
    return facts if setup.spec != SPEC else record.write("disk_tier", **facts)


# ---- the model ----


def read_trace(n_tokens: int) -> NDArray[np.int64]:
    """Experts of `n_tokens` tokens of the recorded routing: [n_tokens, layers, experts used]."""
    if not TRACE.exists():
        raise cgroup.SkippedError(f"expected the recorded routing of gpt-oss-20b, found none (at {TRACE.parent.parent})")
    with np.load(TRACE) as found:
        first = found["offsets"][FIRST_EXAMPLE]
        return np.asarray(found["ids"][first : first + n_tokens], dtype=np.int64)


def cover(trace: NDArray[np.int64]) -> list[int]:
    """Tokens that between them ask for every expert that the trace ever asks for: greedy, so few."""
    wanted = [{(layer, int(expert)) for layer, used in enumerate(token) for expert in used} for token in trace]
    left, found = set().union(*wanted), []
    while left:
        found.append(max(range(len(wanted)), key=lambda token: len(wanted[token] & left)))
        left -= wanted[found[-1]]
    return found


def _model(spec: syn.Spec, trace: NDArray[np.int64]) -> Path:
    """The model's file in the cache folder; written when it is not there, or not whole."""
    folder = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slotpool/benchmarks"
    path = folder / f"replay-{spec.n_embd}.gguf"
    says = path.with_suffix(".json")
    what = {"spec": repr(spec), "first_example": FIRST_EXAMPLE, "n_tokens": len(trace)}
    if path.exists() and says.exists() and json.loads(says.read_text()) == what | {"size": path.stat().st_size}:
        _say(f"the model is there already: {path}")
        return path
    _check_space(folder, spec)
    _say(f"writing the model, once: {path}")
    partial = path.with_suffix(".partial")
    syn.replay(trace, spec, partial)
    partial.replace(path)
    says.write_text(json.dumps(what | {"size": path.stat().st_size}))
    return path


def _check_space(folder: Path, spec: syn.Spec) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    needed = int(1.1 * spec.n_layer * spec.n_expert * 3 * spec.n_embd * spec.n_ff_exp * 17 / 32)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise cgroup.SkippedError(f"expected {needed / 1e9:.1f} GB of free disk for the model, found {free / 1e9:.1f} GB (at {folder})")


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
        where = f"[{number}/{len(todo)}, {passed:.0f} s] round {round_ + 1}, {_cap_name(arm.cap)}: {arm.name}"
        why_not = _why_not(arm, samples, 60 * setup.minutes - passed)
        if not why_not:
            samples.append(_sample(setup, model, pieces, tokens, round_, arm))
            samples[-1]["run_seconds"] = time.monotonic() - started - passed
        _say(f"{where}: {why_not or _result(samples[-1])}")
    return samples


def _schedule(setup: Setup) -> Iterator[tuple[int, Arm]]:
    """Rounds of all arms, every other one backwards. An arm with fewer rounds than others has its first and last with them."""
    n_rounds = max(setup.rounds, setup.plain_rounds, setup.resident_rounds)
    for round_ in range(n_rounds):
        contestants = [arm for cap in (0, *setup.caps) for arm in arms(setup, cap) if round_ in _rounds(setup, arm, n_rounds)]
        yield from ((round_, arm) for arm in (contestants if round_ % 2 == 0 else reversed(contestants)))


def _rounds(setup: Setup, arm: Arm, n_rounds: int) -> set[int]:
    mine = setup.resident_rounds if not arm.cap else setup.rounds if arm.is_pool else setup.plain_rounds
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
    answer = disk_worker.measure(model, arm, _passes(setup, arm, first, tokens), limit, TIMEOUT)
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
        f"{found['ttft_seconds']:.1f} s, disk {_disk(sample) / 1e9:.2f} GB/s"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- the figures ----


def speeds(sample: dict[str, Any]) -> dict[str, float]:
    """What one run says, of its last pass; `ttft_seconds` and `cold_tps` of its first. Steady is after the warm tokens, per token."""
    cold, last = sample["passes"][0], sample["passes"][-1]
    n_steady, steady = len(last["times"]) - last["n_warm"], last["steady"]
    seconds = sum(last["times"][last["n_warm"] :])
    return {
        "steady_tps": n_steady / seconds if n_steady else 0.0,
        "n_steady": n_steady,
        "cold_tps": len(cold["times"]) / sum(cold["times"]),
        "prompt_tps": last["n_prompt"] / last["prompt"]["seconds"],
        "ttft_seconds": sample["load"]["seconds"] + cold["prompt"]["seconds"],
        "load_seconds": sample["load"]["seconds"],
        "load_read_bytes": sample["load"]["read_bytes"],
        "peak_bytes": sample["peak_bytes"],
        "hit_rate": steady["hits"] / steady["lookups"] if steady["lookups"] else 0.0,
        "miss_bytes": steady["bytes_copied"] / max(1, n_steady),
        "wait_ms": steady["wait_ms"] / max(1, n_steady),
        "read_bytes": steady["read_bytes"] / max(1, n_steady),
        "major_faults": steady["major_faults"] / max(1, n_steady),
    }


def figures(samples: Sequence[dict[str, Any]], setup: Setup, file_bytes: int) -> dict[str, Any]:
    """Per cap: every arm's numbers, the pool's share of its bounds by round, and the pool over the best plain arm."""
    found: dict[str, Any] = {}
    tables = {cap: _table([one for one in samples if one["cap"] == cap]) for cap in (0, *setup.caps)}
    for cap, table in tables.items():
        pools = [one for one in samples if one["cap"] == cap and one["arm"] == "pool" and not one["failed"]]
        bounds = [_bounds(one, tables[0], file_bytes) for one in pools] if cap else []
        plain_tps = _best(table, "steady_tps", [name for name in table if name != "pool"])
        found[str(cap)] = {"arms": table, "plain_tps": plain_tps, "bounds": bounds}
        found[str(cap)] |= {"over_plain": _over_plain(table), "over_plain_in_layout": _over_plain(table, _IN_LAYOUT)}
    return found


def _table(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By arm: a spread of every number, or why there is none."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(one["arm"] for one in samples):
        mine = [one for one in samples if one["arm"] == name]
        good = [speeds(one) for one in mine if not one["failed"]]
        found[name] = {key: record.spread([one[key] for one in good]) for key in (good[0] if good else ())}
        found[name]["failed"] = [one["failed"] for one in mine if one["failed"]]
    return found


def _bounds(sample: dict[str, Any], resident: dict[str, Any], file_bytes: int) -> dict[str, Any]:
    """The most that this run's disk and the resident arms allow, in tokens/s, and the share of it that was reached."""
    mine, disk = speeds(sample), _disk(sample)
    disk_tps = disk / mine["miss_bytes"] if mine["miss_bytes"] else float("inf")
    compute, in_layout = (_best(resident, "steady_tps", names) for names in (tuple(resident), _IN_LAYOUT))
    once = sample["passes"][0]["n_prompt"] * disk / file_bytes
    prompt, prompt_in_layout = (min(once, _best(resident, "prompt_tps", names)) for names in (tuple(resident), _IN_LAYOUT))
    return {
        "disk": disk,
        "tps": min(compute, disk_tps),
        "by": "compute" if compute < disk_tps else "disk",
        "share": mine["steady_tps"] / min(compute, disk_tps),
        "share_in_layout": mine["steady_tps"] / min(in_layout, disk_tps),
        "prompt_tps": prompt,
        "prompt_share": mine["prompt_tps"] / prompt,
        "prompt_share_in_layout": mine["prompt_tps"] / prompt_in_layout,
    }


def _over_plain(table: dict[str, Any], names: Sequence[str] = ()) -> dict[str, float]:
    """The pool's medians over those of the plain arm (all, or `names`) that is best at each; above one is better, for ttft too."""
    plain, pool = [name for name in names or table if name != "pool"], ("pool",)
    found = {key: (_best(table, key, pool), _best(table, key, plain)) for key in ("steady_tps", "cold_tps", "prompt_tps")}
    waits = [[table[one]["ttft_seconds"]["median"] for one in names if "ttft_seconds" in table.get(one, {})] for names in (pool, plain)]
    ratios = {key: mine / theirs for key, (mine, theirs) in found.items() if 0 < theirs < float("inf") and mine < float("inf")}
    return ratios | ({"ttft": min(waits[1]) / min(waits[0])} if all(waits) else {})


def _best(table: dict[str, Any], key: str, names: Sequence[str]) -> float:
    """The highest median of some arms; infinite, so that it bounds nothing, where none of them has one."""
    medians: list[float] = [table[name][key]["median"] for name in names if key in table.get(name, {})]
    return max(medians, default=float("inf"))


def _disk(sample: dict[str, Any]) -> float:
    return float(sum(sample["disk"]) / len(sample["disk"]))


def unequal_logits(samples: Sequence[dict[str, Any]]) -> list[str]:
    """Where arms on the same kernels, equally far in the same round, have other logits than each other: nowhere, or all is void."""
    found: dict[tuple[int, int], set[str]] = {}
    for one in (one for one in samples if one["is_exact"] and not one["failed"]):
        cold = one["passes"][0]
        for n_tokens, value in zip((0, cold["n_warm"], len(cold["times"])), cold["hashes"], strict=True):
            found.setdefault((one["round"], n_tokens), set()).add(value)
    return [f"round {round_ + 1} after {n} tokens: {len(values)} different" for (round_, n), values in found.items() if len(values) > 1]


# ---- the table ----

_COLUMNS = (
    ("tokens/s", "steady_tps", 1, "{:.2f}"),
    ("from cold", "cold_tps", 1, "{:.2f}"),
    ("prompt", "prompt_tps", 1, "{:.1f}"),
    ("first, s", "ttft_seconds", 1, "{:.1f}"),
    ("peak GB", "peak_bytes", 1e9, "{:.2f}"),
    ("MB read", "read_bytes", 1e6, "{:.1f}"),
    ("faults", "major_faults", 1, "{:.0f}"),
    ("hits", "hit_rate", 1, "{:.3f}"),
)
"""Title, number, unit, format. MB read and faults are per token, after the warm ones."""


_SHARES = (
    ("its bound", "share"),
    ("its bound, compute in the file's layout", "share_in_layout"),
    ("its bound for the prompt", "prompt_share"),
    ("its bound for the prompt, compute in the file's layout", "prompt_share_in_layout"),
)


def line(made: dict[str, Any]) -> str:
    """The figures in one screen."""
    disks = [_disk(one) / 1e9 for one in made["samples"]]
    out = [f"experts on disk: a model of {made['file_bytes'] / 1e9:.1f} GB, disk {min(disks):.2f} to {max(disks):.2f} GB/s, medians"]
    for cap, found in made["figures"].items():
        out.append(f"{_cap_name(int(cap)):26}" + "".join(f"{title:>10}" for title, *_ in _COLUMNS))
        out.extend(f"  {name:24}{_row(numbers)}" for name, numbers in found["arms"].items())
        for what, key in (("the best of plain", "over_plain"), ("plain, not repacked", "over_plain_in_layout")):
            out.append(f"  pool over {what}: " + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in found[key].items()))
        out.extend(_shares(found))
    out.append("VOID, logits differ: " + "; ".join(made["unequal_logits"]) if made["unequal_logits"] else "logits equal in all exact arms")
    return "\n".join(out)


def _row(numbers: dict[str, Any]) -> str:
    if len(numbers) == 1:
        return f"  {numbers['failed'][0]}"
    cells = [form.format(numbers[key]["median"] / unit) for _, key, unit, form in _COLUMNS]
    return "".join(f"{cell:>10}" for cell in cells) + (f"  ({numbers['failed'][0]})" if numbers["failed"] else "")


def _shares(found: dict[str, Any]) -> list[str]:
    bounds, texts = found["bounds"], []
    for what, key in _SHARES if bounds else ():
        values = [one[key] for one in bounds]
        texts.append(f"  pool: {median(values):.2f} ({min(values):.2f} to {max(values):.2f}) of {what}")
    if bounds:
        tps, plain = median(one["tps"] for one in bounds), found["plain_tps"]
        n_disk = sum(one["by"] == "disk" for one in bounds)
        texts.append(f"  its bound: {tps:.2f} tokens/s, {tps / plain:.1f}x of plain; the disk's in {n_disk} of {len(bounds)} rounds")
    return texts


def _cap_name(cap: int) -> str:
    return f"memory 1/{cap} of the file" if cap else "no cap"


def main() -> None:
    """`python -m benchmarks.disk_tier`, with options for a shorter run."""
    parser = argparse.ArgumentParser(description="Experts on disk against plain llama.cpp, in too little memory and in enough.")
    parser.add_argument("--quick", action="store_true", help="try the benchmark itself on a small model; leaves no record")
    parser.add_argument("--rounds", type=int, help="rounds of the pool under a cap")
    parser.add_argument("--plain-rounds", type=int, help="rounds of plain llama.cpp under a cap")
    parser.add_argument("--resident-rounds", type=int, help="rounds with no cap")
    parser.add_argument("--caps", type=int, nargs="+", help="memory as parts of the file: 2 is a half")
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
