"""Prompts that stream through a device against llama.cpp's own path (op offload), over link speeds and slots, in declared time.

The chaos device stands for a GPU: its experts and its link take a declared time per byte that dwarfs the real work, and overlap counts only
where threads really overlap. Routing is recorded (gpt-oss-20b, two of its layers), replayed by a SYN model. Two workloads: one long prompt
into an empty pool, and a chat of twelve turns whose answers are generated in between; only prompts are timed. An arm whose counters do not
say (distinct - resident) x slab, or whose prompts did not stream, is an error.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import replay_model, traces
from benchmarks.record import spread, write
from slotpool import model as files
from slotpool import plan as plans
from slotpool.cli.output import print_line, print_table
from slotpool.native import PhaseCounts
from testkit import syn

RATIOS = (0.1, 0.3, 1.0)
"""Speed of the link over the speed at which the device computes experts, bytes by bytes."""
SHARES = (0.25, 0.5, 0.75)
"""Slots of an expert tensor over its experts."""
STOCK, WAYS = "stock", ("stream", "auto")
WORKLOADS = ("long", "chat")
LEAST, REACH = 0.98, 1.4
"""Asked for: `auto` never below the first; `stream` at least the second where the link is the bottleneck (0.1)."""
EXPERT_NS = 3_000_000
"""Declared time of one expert of a layer on the device, however many rows it has."""
LAYERS = (3, 20)
N_EXPERT, N_USED, N_TOKENS = 32, 4, 512
N_UBATCH, N_LONG, N_TURNS, N_PROMPT, N_ANSWER = 256, 2048, 12, 36, 6
N_ROUNDS = 1
SPEC = syn.Spec(
    arch="qwen3moe",
    n_layer=len(LAYERS),
    n_expert=N_EXPERT,
    n_expert_used=N_USED,
    n_embd=N_TOKENS,
    n_ff_exp=32,
    n_vocab=N_TOKENS,
    types={"*": "F16"},
)


@dataclass
class Found:
    """One arm at one point: prompt tokens a second by workload and round, and what the pool counted in the last."""

    speeds: dict[str, list[float]] = field(default_factory=lambda: {workload: [] for workload in WORKLOADS})
    counts: dict[str, dict[str, float]] = field(default_factory=dict)


def run() -> dict[str, Any]:
    """Runs the grid, writes the record and returns it."""
    trace = replay_model.read_trace(N_TOKENS)[:, LAYERS]
    with tempfile.TemporaryDirectory(prefix="slotpool-prompts-") as folder:
        path = syn.replay(trace, SPEC, Path(folder) / "recorded.gguf")
        facts = files.read(path)
        cells = [cell for ratio in RATIOS for cell in measure(path, facts, ratio)]
    tokens = {"long": N_LONG, "turns": N_TURNS, "prompt": N_PROMPT, "answer": N_ANSWER, "ubatch": N_UBATCH}
    return write(
        "prompt_stream", expert_ns=EXPERT_NS, tokens=tokens, rounds=N_ROUNDS, spec=repr(SPEC), trace=traces.recorded().name, cells=cells
    )


def line(made: dict[str, Any]) -> str:
    """Prints the table; the figure in one line."""
    header = (
        "link/compute",
        "slots",
        *(f"{workload} {way}" for workload in WORKLOADS for way in WAYS),
        "long saved",
        "chat saved",
        "hits after",
    )
    rows, worst, at_link = [], [], []
    for cell in made["cells"]:
        gains = {(workload, way): gain(cell, workload, way) for workload in WORKLOADS for way in WAYS}
        worst += [gains[workload, "auto"] for workload in WORKLOADS]
        at_link += [gains[workload, "stream"] for workload in WORKLOADS if cell["ratio"] == RATIOS[0]]
        saved = [cell["arms"]["stream"]["counts"][workload]["hit_rate"] for workload in WORKLOADS]
        after = cell["hit_rate_bypass"], cell["hit_rate_stream"]
        rows.append(
            (
                f"{cell['ratio']:g}",
                f"{cell['share']:.0%}",
                *(f"{one:.2f}x" for one in gains.values()),
                *(f"{one:.0%}" for one in saved),
                f"{after[0]:.1%} -> {after[1]:.1%}",
            )
        )
    print_line("prompt tokens a second over llama.cpp's own path, declared time; copies saved; generation's hit rate, bypass -> stream")
    print_table(header, rows, right=header)
    return (
        f"prompts through a device in declared time: auto at least {min(worst):.2f}x of llama.cpp's own path ({LEAST} asked for), "
        f"stream {min(at_link):.2f}x to {max(at_link):.2f}x where the link is the bottleneck ({REACH} asked for)"
    )


def gain(cell: dict[str, Any], workload: str, way: str) -> float:
    """Speed of an arm over the stock path, medians over the rounds."""
    return float(cell["arms"][way]["speeds"][workload]["median"] / cell["arms"][STOCK]["speeds"][workload]["median"])


# ---- one link speed ----


def measure(path: Path, facts: files.Model, ratio: float) -> Iterator[dict[str, Any]]:
    """The cells of a ratio: arms in turns, the stock path once a round for all numbers of slots."""
    arms = [(STOCK, 0.0), *((way, share) for share in SHARES for way in WAYS)]
    found = {arm: Found() for arm in arms}
    for turn in range(N_ROUNDS):
        for arm in arms[:: 1 if turn % 2 == 0 else -1]:
            _take(path, facts, ratio, arm, found[arm])
    for share in SHARES:
        of_cell = {STOCK: found[STOCK, 0.0]} | {way: found[way, share] for way in WAYS}
        shown = {
            arm: {"speeds": {workload: spread(of_cell[arm].speeds[workload]) for workload in WORKLOADS}, "counts": of_cell[arm].counts}
            for arm in of_cell
        }
        rates = {f"hit_rate_{way}": hit_rate(path, facts, share, way) for way in ("bypass", "stream")}
        yield {"ratio": ratio, "share": share, "slots": _slots(share), "arms": shown, **rates}


def _take(path: Path, facts: files.Model, ratio: float, arm: tuple[str, float], found: Found) -> None:
    for workload in WORKLOADS:
        speed, counts = _timed(path, facts, ratio, arm, workload)
        found.speeds[workload].append(speed)
        if counts:
            found.counts[workload] = counts


def _timed(path: Path, facts: files.Model, ratio: float, arm: tuple[str, float], workload: str) -> tuple[float, dict[str, float]]:
    from testkit.oracle import engine as calls
    from testkit.oracle.pooled import pooled
    from testkit.oracle.script import Setup

    way, share = arm
    _declare(facts, None)
    setup = Setup(n_gpu_layers=99, n_ctx=2304, n_ubatch=N_UBATCH, placed=(("ffn_.*_exps", "CPU"),) if way == STOCK else ())
    if way == STOCK:
        with calls.loaded(path, setup) as loaded, calls.running(loaded, setup) as context:
            return _speed(context, facts, ratio, workload), {}
    with pooled(path, plans.make(facts, _slots(share), devices=["CHAOS0"], misses="copy", rail=0, prefill=way), setup) as pool:
        speed = _speed(pool.first, facts, ratio, workload)
        groups = pool.counts()
    prompt = sum((group.prompt for group in groups), PhaseCounts())
    slab = groups[0].slab_bytes
    if not prompt.lookups or prompt.bytes_copied != (prompt.lookups - prompt.hits) * slab or any(group.refused for group in groups):
        raise SystemExit(f"expected prompts that stream, (distinct - resident) x slab of them copied, found {prompt} at {arm}, {workload}")
    return speed, _counted(prompt, slab)


def _counted(prompt: PhaseCounts, slab: int) -> dict[str, float]:
    names = ("lookups", "hits", "bytes_copied", "bytes_saved", "ranges_copied", "empty_copies")
    return {name: getattr(prompt, name) for name in names} | {"hit_rate": prompt.hits / prompt.lookups, "slab_bytes": slab}


def _speed(context: Any, facts: files.Model, ratio: float, workload: str) -> float:
    """Prompt tokens a second. What is generated between turns takes no declared time, and is not timed."""
    from testkit.oracle.script import Batch

    n_tokens, seconds = 0, 0.0
    for prompt, answer in _script(workload):
        _declare(facts, ratio)
        begin = time.perf_counter()
        context.decode(Batch(tuple(prompt)))  # every layer has all rows then: there are only two
        seconds += time.perf_counter() - begin
        n_tokens += len(prompt)
        _declare(facts, None)
        for token in answer:
            context.decode(Batch((token,)))
    return n_tokens / seconds


def _script(workload: str) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Prompts and the answers behind them, tokens of the recorded text in order."""
    if workload == "long":
        yield [token % N_TOKENS for token in range(N_LONG)], ()
        return
    size = N_PROMPT + N_ANSWER
    for turn in range(N_TURNS):
        tokens = range(turn * size, (turn + 1) * size)
        yield tokens[:N_PROMPT], tokens[N_PROMPT:]


def hit_rate(path: Path, facts: files.Model, share: float, way: str) -> float:
    """Of generation in the chat, once slots are full: prompts beside the pool (bypass) or through it."""
    from testkit.oracle.pooled import pooled
    from testkit.oracle.script import Batch, Setup

    _declare(facts, None)
    setup = Setup(n_gpu_layers=99, n_ctx=2304, n_ubatch=N_UBATCH)
    with pooled(path, plans.make(facts, _slots(share), devices=["CHAOS0"], misses="copy", rail=0, prefill=way), setup) as pool:
        for token in range(N_TOKENS):  # every slot is full then, as after any longer answer
            pool.first.decode(Batch((token,)))
        pool.session.reset_counts()
        for prompt, answer in _script("chat"):
            pool.first.decode(Batch(tuple(prompt)))
            for token in answer:
                pool.first.decode(Batch((token,)))
        counts = sum((group.generation for group in pool.counts()), PhaseCounts())
    return counts.hits / counts.lookups


def _slots(share: float) -> int:
    return round(share * N_EXPERT)


_chaos: list[Any] = []


def _declare(facts: files.Model, ratio: float | None) -> None:
    """The declared speeds of this point; without one nothing takes declared time."""
    from testkit.chaos import Chaos

    slab = facts.expert_bytes / facts.n_expert / len(facts.layers)
    ns = EXPERT_NS / slab
    if not _chaos:
        _chaos.append(Chaos.load(threaded=1))
    _chaos[0].set(expert_ns_per_byte=ns if ratio else 0.0, link_bytes_per_second=ratio * 1e9 / ns if ratio else 0.0)
