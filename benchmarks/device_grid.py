"""Misses by copy, by the CPU and by `auto` against plain CPU experts, over a grid of link speeds and slots, in declared time.

The chaos device stands for a GPU: its compute, the CPU's experts and the link each take a declared time per byte that dwarfs the real
work, and overlap counts only where threads really overlap. So this measures how misses are scheduled, not how fast a machine is.
A process for each routing: text through the bundled model, and SYN models that replay a skewed and a flat routing. Every arm decodes the
same tokens, so it asks for the same experts; a pool arm without lookups is an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.record import spread, write
from slotpool import model as files
from slotpool import plan as plans
from slotpool.cli.output import print_line, print_table

ROUTINGS = ("text", "skewed", "flat")
RATIOS = (0.05, 0.1, 0.25, 0.5, 1.0, 4.0)
"""Speed of the link over the speed at which the CPU reads experts."""
SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)
"""Slots of an expert tensor over its experts."""
MODES = ("cpu", "copy", "auto")
OTHERS = ("plain", "cpu", "copy")
REACH = 0.97
"""Asked for at every point: `auto` over the best of the others."""
EXPERT_NS = 2_500_000
"""Declared time of one expert of a layer on the CPU; the device takes a DEVICE_SPEED-th."""
DEVICE_SPEED = 16
N_FILL, N_LEARN, N_MEASURED = 200, 16, 32
"""Tokens: the first fill the pool while nothing takes declared time, the next fill the running means, the others are timed."""
SETTLE_S = 0.001
"""After each token that fills: what is copied for later arrives, so that all arms begin with much the same experts in their slots."""
N_ROUNDS = 3


@dataclass(frozen=True)
class Cell:
    """One point of the grid."""

    ratio: float
    slots: int
    share: float


def run() -> dict[str, Any]:
    """Runs the grid, one process a routing at the same time (they sleep), writes the record and returns it."""
    command = [sys.executable, "-m", "benchmarks.device_grid"]
    workers = [subprocess.Popen([*command, one], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for one in ROUTINGS]
    grids = {}
    for routing, worker in zip(ROUTINGS, workers, strict=True):
        answer, _ = worker.communicate()
        if worker.returncode:
            raise SystemExit(f"expected the grid of {routing}, found exit code {worker.returncode}")
        grids[routing] = json.loads(answer)
    tokens = {"fill": N_FILL, "learn": N_LEARN, "measured": N_MEASURED}
    return write("device_grid", expert_ns=EXPERT_NS, device_speed=DEVICE_SPEED, tokens=tokens, rounds=N_ROUNDS, grids=grids)


def line(made: dict[str, Any]) -> str:
    """Prints a table for each routing; the figure in one line."""
    worst = []
    for routing, cells in made["grids"].items():
        show(routing, cells)
        worst += [speed_of(cell, "auto") / max(speed_of(cell, arm) for arm in OTHERS) for cell in cells]
    reached = sum(one >= REACH for one in worst)
    others = ", ".join(OTHERS)
    return (
        f"misses in declared time: auto at least {min(worst):.3f}x of the best of {others}; {reached} of {len(worst)} points reach {REACH}"
    )


def speed_of(cell: dict[str, Any], arm: str) -> float:
    """Tokens per second, median over the rounds."""
    return float(cell["arms"][arm]["median"])


def show(routing: str, cells: Sequence[dict[str, Any]]) -> None:
    """A row per point: speeds against plain CPU experts, `auto` against the best of the others, hit rate beside its break-even."""
    header = ("link/RAM", "slots", "hit rate", "h >= 1-P/R", *MODES, "auto/best")
    rows = []
    for cell in cells:
        speed = {arm: speed_of(cell, arm) for arm in ("plain", *MODES)}
        best = max(speed[arm] for arm in OTHERS)
        rows.append(
            (
                f"{cell['ratio']:g}",
                f"{cell['share']:.1%}",
                f"{cell['hit_rate']:.1%}",
                f"{max(0.0, 1 - cell['ratio']):.0%}",
                *(f"{speed[arm] / speed['plain']:.2f}x" for arm in MODES),
                f"{speed['auto'] / best:.3f}",
            )
        )
    print_line(f"{routing}: decode over plain CPU experts, declared time")
    print_table(header, rows, right=header)


# ---- one routing, in a process of its own ----


def worker(routing: str) -> None:
    """Prints the cells of one routing as JSON."""
    with tempfile.TemporaryDirectory(prefix="slotpool-grid-") as folder:
        path, tokens = routed(routing, Path(folder))
        facts = files.read(path)
        print(json.dumps([measure(path, facts, tokens, cell) for cell in cells_of(facts.n_expert, facts.n_expert_used)]))


def cells_of(n_expert: int, n_used: int) -> Iterator[Cell]:
    for ratio in RATIOS:
        for share in SHARES:
            yield Cell(ratio, max(n_used, round(share * n_expert)), share)


def routed(routing: str, folder: Path, n_tokens: int = N_FILL + N_LEARN + N_MEASURED) -> tuple[Path, list[int]]:
    """A model and the tokens that are given to it one by one."""
    if routing == "text":
        from llama_cpp import Llama

        path = Path(str(resources.files("slotpool") / "data" / "demo.gguf"))
        text = (Path(__file__).parents[1] / "README.md").read_bytes()
        tokens = Llama(str(path), vocab_only=True, verbose=False).tokenize(text[:4000], add_bos=True)
        return path, tokens[:n_tokens]
    from testkit import syn

    spec = syn.Spec(arch="qwen3moe", n_layer=4, n_expert=32, n_expert_used=4, n_embd=256 if n_tokens <= 256 else 512, n_vocab=n_tokens)
    return syn.replay(trace_of(routing, n_tokens, spec.n_layer), spec, folder / f"{routing}.gguf"), list(range(n_tokens))


def trace_of(routing: str, n_tokens: int, n_layer: int) -> np.ndarray[Any, Any]:
    """[n_tokens, n_layer, 4] of 32 experts: flat is uniform; skewed is Zipf with exponent 1, another order of the experts in each layer."""
    rng = np.random.default_rng(7)
    weights = np.ones(32) if routing == "flat" else 1 / np.arange(1, 33)
    orders = [rng.permutation(32) for _ in range(n_layer)]
    draw = [[order[rng.choice(32, 4, replace=False, p=weights / weights.sum())] for order in orders] for _ in range(n_tokens)]
    return np.array(draw)


def measure(path: Path, facts: files.Model, tokens: Sequence[int], cell: Cell) -> dict[str, Any]:
    """Tokens per second of each arm at one point, arms taking turns, and the hit rates."""
    speeds: dict[str, list[float]] = {arm: [] for arm in ("plain", *MODES)}
    hit_rates: dict[str, list[float]] = {arm: [] for arm in MODES}
    for turn in range(N_ROUNDS):
        for arm in list(speeds)[:: 1 if turn % 2 == 0 else -1]:
            speed, found = decode(path, facts, tokens, cell, arm)
            speeds[arm].append(speed)
            if arm in hit_rates:
                hit_rates[arm].append(found)
    hit_rate = median(hit_rates["cpu"])
    return vars(cell) | {"hit_rate": hit_rate, "hit_rates": hit_rates, "arms": {arm: spread(found) for arm, found in speeds.items()}}


def decode(path: Path, facts: files.Model, tokens: Sequence[int], cell: Cell, arm: str) -> tuple[float, float]:
    """Tokens per second over the measured tokens, and the hit rate over them (0 without a pool)."""
    from testkit.oracle import engine as calls
    from testkit.oracle.pooled import pooled
    from testkit.oracle.script import Batch, Setup

    declare(facts, None)
    setup = Setup(n_gpu_layers=99, placed=(("ffn_.*_exps", "CPU"),) if arm == "plain" else ())
    steps = [Batch((token,)) for token in tokens]
    if arm == "plain":
        with calls.loaded(path, setup) as loaded, calls.running(loaded, setup) as context:
            context.run(steps[:N_FILL])
            declare(facts, cell)
            context.run(steps[N_FILL : N_FILL + N_LEARN])
            return timed(context, steps[N_FILL + N_LEARN :]), 0.0
    made = plans.make(facts, cell.slots, devices=["CHAOS0"], misses=arm, rail=0)
    with pooled(path, made, setup) as pool:
        for step in steps[:N_FILL]:
            pool.run([step])
            time.sleep(SETTLE_S)
        declare(facts, cell)
        pool.run(steps[N_FILL : N_FILL + N_LEARN])
        pool.session.reset_counts()
        speed = timed(pool.first, steps[N_FILL + N_LEARN :])
        counts = [group.generation for group in pool.counts()]
    lookups = sum(count.lookups for count in counts)
    if not lookups:
        raise SystemExit(f"expected lookups in the pool at {cell} with {arm}, found none")
    return speed, sum(count.hits for count in counts) / lookups


def timed(context: Any, steps: Sequence[Any]) -> float:
    """Tokens per second."""
    begin = time.perf_counter()
    context.run(steps)
    return len(steps) / (time.perf_counter() - begin)


_chaos: list[Any] = []


def declare(facts: files.Model, cell: Cell | None, expert_ns: int = EXPERT_NS, catch_up: bool = False) -> None:
    """The declared speeds of this point; without one nothing takes declared time. `catch_up`: waits that end late shorten the next ones."""
    from testkit.chaos import Chaos

    slab = facts.expert_bytes / facts.n_expert / len(facts.layers)
    cpu_ns = expert_ns / slab
    knobs = {
        "catch_up": float(catch_up),
        "cpu_ns_per_byte": cpu_ns if cell else 0.0,
        "expert_ns_per_byte": cpu_ns / DEVICE_SPEED if cell else 0.0,
        "link_bytes_per_second": cell.ratio * 1e9 / cpu_ns if cell else 0.0,
    }
    if not _chaos:
        _chaos.append(Chaos.load(threaded=1, cpu_ns_per_byte=1.0))  # a CPU that is to be slowed must know it from the start
    _chaos[0].set(**knobs)


if __name__ == "__main__":
    worker(sys.argv[1])
