"""What `slotpool plan` predicts against what is measured, on the chaos device in declared time, at three link speeds.

Everything that a user's plan is made from is real: the probe measures the declared speeds, llama.cpp says what it reserves, the hit rate is
simulated on a trace of the same routing, and the plan that comes out is what runs. Text through the bundled model, and SYN models that
replay a skewed and a flat routing; a process for each. An expert takes four times as long as in device_grid: what the
machine really does beside that, and the prediction has to know, is then a few per cent of a token.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import device_grid as grid
from benchmarks.record import write
from slotpool import model as files
from slotpool import probe
from slotpool.cli.output import print_line, print_table
from slotpool.planning import Decision, Given, decide
from slotpool.reserve import Wanted, reserve
from slotpool.speeds import Speeds
from slotpool.trace import GENERATION, Facts, Group, Trace, single_events

ROUTINGS = ("text", "skewed", "flat")
RATIOS = (0.1, 0.5, 4.0)
SHARES = (0.25, 0.5)
N_TRACE = 2000
"""Tokens of the trace that the plan is made from; the first of them are those that run."""
EXPERT_NS = 10_000_000
"""Declared time of one expert of a layer on the CPU."""
N_FILL, N_LEARN, N_MEASURED, N_PLAIN = 180, 16, 200, 24
"""Tokens: the first fill the pool while nothing takes declared time, the next fill the running means, the others are timed."""
HIT_REACH, SPEED_REACH = 0.01, 0.15
"""Asked for: predicted hit rates and speeds are at most so far from the measured ones."""


def run() -> dict[str, Any]:
    """Runs all cells, one process a routing at the same time (they sleep), writes a record each routing and returns the cells by it."""
    command = [sys.executable, "-m", "benchmarks.predicted_speed"]
    workers = {routing: subprocess.Popen([*command, routing], stdout=subprocess.PIPE, text=True) for routing in ROUTINGS}
    found = {}
    for routing, worker in workers.items():
        answer, _ = worker.communicate()
        if worker.returncode:
            raise SystemExit(f"expected the cells of {routing}, found exit code {worker.returncode}")
        found[routing] = json.loads(answer)
        write(
            "predicted_speed", routing=routing, expert_ns=EXPERT_NS, tokens={"fill": N_FILL, "measured": N_MEASURED}, cells=found[routing]
        )
    return found


def line(made: dict[str, Any]) -> str:
    """Prints a table for each routing; the figure in one line."""
    ratios, points = [], []
    for routing, cells in made.items():
        show(routing, cells)
        ratios += [cell[arm]["predicted"] / cell[arm]["measured"] for cell in cells for arm in ("pool", "plain")]
        points += [abs(cell["hit_rate"]["predicted"] - cell["hit_rate"]["measured"]) for cell in cells]
    near = sum(abs(ratio - 1) <= SPEED_REACH for ratio in ratios)
    return (
        f"predicted over measured tokens/s: {min(ratios):.2f} to {max(ratios):.2f}, {near} of {len(ratios)} within {SPEED_REACH:.0%}; "
        f"hit rates at most {max(points):.3f} apart, {sum(one <= HIT_REACH for one in points)} of {len(points)} within {HIT_REACH:g}"
    )


def show(routing: str, cells: Sequence[dict[str, Any]]) -> None:
    """A row per cell: hit rates, tokens per second of pool and plain, predicted and measured, and their ratios."""
    header = ("link/RAM", "share", "hit pred.", "hit", "pool pred.", "pool", "ratio", "plain pred.", "plain", "ratio", "verdict")
    rows = []
    for cell in cells:
        pairs = [(cell[arm]["predicted"], cell[arm]["measured"]) for arm in ("pool", "plain")]
        speeds = [text for p, m in pairs for text in (f"{p:.2f}", f"{m:.2f}", f"{p / m:.2f}")]
        hits = (f"{cell['hit_rate']['predicted']:.3f}", f"{cell['hit_rate']['measured']:.3f}")
        rows.append((f"{cell['ratio']:g}", f"{cell['share']:.0%}", *hits, *speeds, cell["verdict"]))
    print_line(f"{routing}: decode, tokens/s in declared time")
    print_table(header, rows, right=header[:-1])


# ---- one routing, in a process of its own ----


def worker(routing: str, ratios: Sequence[float] = RATIOS, shares: Sequence[float] = SHARES) -> list[dict[str, Any]]:
    """The cells of one routing."""
    with tempfile.TemporaryDirectory(prefix="slotpool-predicted-") as folder:
        path, tokens = grid.routed(routing, Path(folder), N_FILL + N_LEARN + N_MEASURED)
        facts = files.read(path)
        _trace[:] = [recorded(routing, path, facts, tokens, Path(folder))]
        cells = [measure(path, facts, tokens, routing, grid.Cell(ratio, 0, share)) for ratio in ratios for share in shares]
        return [cell for cell in cells if cell]


def measure(path: Path, facts: files.Model, tokens: Sequence[int], routing: str, cell: grid.Cell) -> dict[str, Any] | None:
    """Predicted and measured, at one point; None where the planner gives no slots, since there is nothing to measure then."""
    decision = planned(facts, routing, cell)
    if not decision.made.groups or not decision.outlook.predicted or not decision.outlook.plain:
        print(f"{routing}, {cell}: no slots, {decision.outlook.reason}", file=sys.stderr)
        return None
    speed, hit_rate = pooled_speed(path, facts, tokens, cell, decision)
    plain = plain_speed(path, facts, tokens, cell)
    return asdict(cell) | {
        "verdict": decision.outlook.verdict,
        "slots": [group.slots for group in decision.made.groups],
        "hit_rate": {"predicted": decision.outlook.predicted.hit_rate, "measured": hit_rate},
        "pool": {"predicted": decision.outlook.predicted.generation_tps, "measured": speed},
        "plain": {"predicted": plain_without_device(decision), "measured": plain},
    }


_given: list[Given] = []
_trace: list[Trace] = []


def declare(facts: files.Model, cell: grid.Cell | None) -> None:
    """The declared speeds of this point; without one nothing takes declared time."""
    grid.declare(facts, cell, EXPERT_NS, catch_up=True)


def planned(facts: files.Model, routing: str, cell: grid.Cell) -> Decision:
    """The decision for so many bytes on the chaos device, from what the probe finds there."""
    from testkit.chaos import library

    declare(facts, cell)
    from slotpool import engine
    from slotpool.native.probe import Probe

    subjects = probe.of_model(facts, 1, ["CHAOS0"])
    tasks = probe.tasks_of(subjects, Probe(engine.function_address("ggml_backend_load")))
    found, failed = probe.measured([task for task in tasks if task.subject != subjects.file.disk], probe.Effort(3, 0.05))  # type: ignore[union-attr]
    if failed:
        raise SystemExit(f"expected all speeds, found: {failed}")
    declare(facts, None)
    wanted = Wanted(n_ctx=512, n_batch=512, n_ubatch=128)
    given = Given(
        facts,
        subjects.devices,
        reserve(facts, wanted, backends=[str(library())]),
        None,
        Speeds("chaos", tuple(found)),
        available=1 << 40,
        slots=["auto"],
        device_budget=[int(cell.share * facts.expert_bytes)],
        rail=[0],
        trace=_trace[0],
        repack=False,
    )
    _given[:] = [given]
    return decide(given)


def recorded(routing: str, path: Path, facts: files.Model, tokens: Sequence[int], folder: Path) -> Trace:
    """A trace of the routing: of the text that runs and as much again of its kind, or of a SYN model what slotpool trace would record."""
    if routing == "text":
        return recorded_text(path, tokens, folder / "trace")
    ids = grid.trace_of(routing, N_TRACE, len(facts.layers)).astype("int32")
    groups = [
        Group(layer, "exps", facts.n_expert, 4, one, single_events(one, GENERATION))
        for layer in range(ids.shape[1])
        for one in [ids[:, layer].copy()]
    ]
    return Trace(Facts(), tuple(groups))


def recorded_text(path: Path, tokens: Sequence[int], output: Path) -> Trace:
    """Token by token through the engine's own callback."""
    from slotpool import trace
    from slotpool.recording import Settings, Text, record

    record(path, [Text("text", tokens=tokens)], output, Settings(n_threads=1, has_weights=False))
    found = trace.load(output)
    assert isinstance(found, Trace)
    return found


def pooled_speed(path: Path, facts: files.Model, tokens: Sequence[int], cell: grid.Cell, decision: Decision) -> tuple[float, float]:
    """Tokens per second and hit rate of the decision's own plan."""
    from testkit.oracle.pooled import pooled
    from testkit.oracle.script import Batch, Setup

    steps = [Batch((token,)) for token in tokens]
    declare(facts, None)
    with pooled(path, decision.made, Setup(n_gpu_layers=99)) as pool:
        pool.run(steps[:N_FILL])
        declare(facts, cell)
        pool.run(steps[N_FILL : N_FILL + N_LEARN])
        pool.session.reset_counts()
        speed = grid.timed(pool.first, steps[N_FILL + N_LEARN :])
        counts = [group.generation for group in pool.counts()]
    # layers without slots are not looked up, and part of what is predicted: they miss everything
    lookups = N_MEASURED * facts.n_expert_used * len(facts.layers)
    return speed, sum(count.hits for count in counts) / lookups


def plain_speed(path: Path, facts: files.Model, tokens: Sequence[int], cell: grid.Cell) -> float:
    """Tokens per second of plain llama.cpp with all experts on the CPU."""
    from testkit.oracle import engine as calls
    from testkit.oracle.script import Batch, Setup

    setup = Setup(n_gpu_layers=99, placed=(("ffn_.*_exps", "CPU"),))
    steps = [Batch((token,)) for token in tokens]
    declare(facts, None)
    with calls.loaded(path, setup) as loaded, calls.running(loaded, setup) as context:
        context.run(steps[:N_LEARN])
        declare(facts, cell)
        return grid.timed(context, steps[N_LEARN : N_LEARN + N_PLAIN])


def plain_without_device(decision: Decision) -> float:
    """What plain llama.cpp is predicted to do with all experts on the CPU, which is what is measured here."""
    from slotpool.predict import CPU, Layer, judge

    given = _given[0]
    rates = given.rates("CHAOS0")
    layers = [Layer(given.event(group), rates, 0, 0.0, 0.0) for group in decision.made.groups]
    found = judge(layers, given.other_seconds(), CPU, CPU).plain
    assert found
    return found.generation_tps


if __name__ == "__main__":
    print(json.dumps(worker(sys.argv[1])))
