"""What the bench adds to an arm: the worker's timed loop against a loop of nothing but llama.cpp's decode.

On the bundled model, whose tokens take half a millisecond: the worst case by far. Counted in instructions where there is valgrind, which is
exact: a run with one block of tokens and a run with three, their difference is two blocks without what begins and ends a process. And
measured in CPU time of one thread, in blocks that take turns, on one layer of a 30B-A3B's shapes as well. Reach: < 1 %.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import llama_cpp

from benchmarks import decode_resident, record
from slotpool import loading
from slotpool.bench.verdict import compare
from slotpool.bench.worker import Steps
from testkit import syn

SPEC = replace(decode_resident.SPEC, n_layer=1)
N_TOKENS, N_BLOCKS, N_START = 64, 60, 64
LOOPS = ("worker", "bare")


def run() -> dict[str, Any]:
    """Counts and measures, each in processes of its own; writes the record."""
    bundled = Path(str(resources.files("slotpool") / "data" / "demo.gguf"))
    with tempfile.TemporaryDirectory() as folder:
        models = {"bundled": bundled, "one layer of 30B-A3B shapes": syn.write(SPEC, Path(folder) / "shapes.gguf")}
        cpu_time = {name: json.loads(_asked([str(path)]).stdout) for name, path in models.items()}
    instructions = {loop: _instructions(bundled, loop) for loop in LOOPS}
    return record.write(
        "bench_overhead", tokens=N_TOKENS, rounds=N_BLOCKS, threads=1, spec=repr(SPEC), instructions=instructions, cpu_time=cpu_time
    )


def line(made: dict[str, Any]) -> str:
    """The figures in one line."""
    counted = made["instructions"]
    share = f"{counted['worker'] / counted['bare'] - 1:+.2%} of a token's instructions" if counted["bare"] else "not counted (no valgrind)"
    times = [
        f"{name} {one['share']:+.2%} ({one['low']:+.2%} to {one['high']:+.2%}) of {one['bare_us']['median']:.0f} us"
        for name, one in made["cpu_time"].items()
    ]
    return f"bench's own work in what it times: {share}; of CPU time: {', '.join(times)}"


def _asked(arguments: Sequence[str], before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "benchmarks.bench_overhead", *arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True)


def _instructions(path: Path, loop: str) -> float:
    """Instructions a token takes. 0 without valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return 0
    counts = []
    for blocks in ("1", "3"):
        done = _asked([str(path), loop, blocks], [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"])
        counts.append(int(re.findall(r"Collected : (\d+)", done.stderr)[-1]))
    return (counts[1] - counts[0]) / 2 / N_TOKENS


# ---- in a process of its own ----


def _loops(path: str) -> tuple[Steps, dict[str, Callable[[list[int]], Any]], list[int]]:
    llm = loading.load(path, slots=0, n_ctx=512, n_batch=512, n_threads=1, n_threads_batch=1)
    steps, tokens = Steps(llm), [number % 200 + 20 for number in range(N_TOKENS)]
    steps.read(tokens * (N_START // N_TOKENS))
    return steps, {"worker": steps.follow, "bare": _bare(llm)}, tokens


def repeated(path: str, loop: str, blocks: int) -> None:
    """One loop, so many times."""
    steps, loops, tokens = _loops(path)
    for _ in range(blocks):
        steps.rewind(N_START)
        loops[loop](tokens)


def timed(path: str) -> dict[str, Any]:
    """CPU microseconds a token of both loops, block by block, and the share that the worker's adds."""
    steps, loops, tokens = _loops(path)
    found: dict[str, list[float]] = {loop: [] for loop in LOOPS}
    for block in range(N_BLOCKS + 1):
        for loop in LOOPS if block % 2 else reversed(LOOPS):
            steps.rewind(N_START)
            started = time.thread_time()
            loops[loop](tokens)
            if block:  # the first one warms both up
                found[loop].append(1e6 * (time.thread_time() - started) / N_TOKENS)
    ratio = compare(found["worker"], found["bare"])
    shares = {"share": ratio.median - 1, "low": ratio.low - 1, "high": ratio.high - 1}
    return shares | {f"{loop}_us": record.spread(found[loop]) for loop in LOOPS}


def _bare(llm: loading.PooledLlama) -> Callable[[list[int]], None]:
    ids = (llama_cpp.llama_token * 1)()
    batch, context, decode = llama_cpp.llama_batch_get_one(ids, 1), llm._ctx.ctx, llama_cpp.llama_decode

    def loop(tokens: list[int]) -> None:
        for token in tokens:
            ids[0] = token
            decode(context, batch)

    return loop


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(timed(sys.argv[1])))
    else:
        repeated(sys.argv[1], sys.argv[2], int(sys.argv[3]))
