"""The pool on an NVIDIA GPU against plain llama.cpp, in at most ten minutes: builds, checks, compares, writes a record.

python -m benchmarks.gpu [--source FOLDER]. Without a GPU or nvcc it says so and ends with exit code 0; where something was not the same,
or was not measured, with 1. Everything that a step says is under --out ($OUT, or build/gpu-results) as it comes; what was built stays in
--work, so that a second call goes on where the first ran out of time. On a machine without a network --source is the folder that
`python -m benchmarks.gpu.source` made elsewhere. `--stand-in CHAOS0` or `RPC0` goes the same way on a machine without a GPU, with the
engine that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu import build
from benchmarks.gpu.steps import Steps

_TYPES = ("Q4_K", "MXFP4", "Q8_0", "Q6_K", "F16", "BF16", "Q5_K", "Q3_K", "Q2_K", "IQ4_NL")
"""The matrix's, those that people use most first: time may end."""
_EXPERTS = {"bundled": (24, 4), "speed": (128, 8)}
"""Of each model: experts, and those that a token uses."""
_SHARES = (0.125, 0.25, 0.5)


def main() -> int:
    """Runs all steps; the exit code."""
    chosen = _arguments()
    if not chosen.stand_in and (reason := build.why_not()):
        print(f"gpu: skipped: {reason}")
        return 0
    steps = Steps(chosen.out, time.monotonic() + 60 * chosen.minutes)
    device = chosen.stand_in or "CUDA0"
    build.facts(steps)
    environment = _environment(steps, chosen)
    if environment is None:
        return 1
    if _is_there(steps, environment, device):
        measure(steps, environment, device, chosen)
    return finish(steps, environment, device)


def measure(steps: Steps, environment: Mapping[str, str], device: str, chosen: argparse.Namespace) -> None:
    """Correctness first, then speeds, the model of some GB before the small one."""
    python = sys.executable
    for name in _TYPES[: chosen.types]:
        command = [python, "-m", "benchmarks.gpu.matrix", device, name]
        steps.run(f"matrix-{name}", command, 60, environment=environment)
        if device.startswith("CUDA") and any(not cell.get("same", True) for cell in steps.of(f"matrix-{name}")):
            # whether fused kernels are why: a chain that waits for its slabs is computed in parts, which are not fused
            steps.run(f"unfused-{name}", command, 60, environment={**environment, "GGML_CUDA_DISABLE_FUSION": "1"})
    steps.run("link", [python, "-m", "benchmarks.gpu.link", device], 40, environment=environment)
    models = {"bundled": str(Path(build.ROOT / "src/slotpool/data/demo.gguf"))}
    if not chosen.small:
        model = chosen.work / "speed.gguf"
        is_there = model.exists() or steps.run(
            "write", [python, "-m", "benchmarks.gpu.speed", "write", str(chosen.work)], 120, environment=environment
        )
        models = ({"speed": str(model)} if is_there else {}) | models
    for name, path in models.items():
        for arm in arms(*_EXPERTS[name]):
            command = [python, "-m", "benchmarks.gpu.speed", device, path, json.dumps(arm)]
            steps.run(f"{name}-{arm['name']}", command, 60, environment=environment)


def arms(n_expert: int, n_used: int) -> Iterator[dict[str, Any]]:
    """Plain with its experts on the device (where they fit), on the CPU as llama.cpp keeps them and without repacking; pools."""
    yield {"name": "plain-device", "on": "device"}
    yield {"name": "plain-cpu", "on": "CPU", "repack": True}
    yield {"name": "plain-cpu-unpacked", "on": "CPU"}
    for share in _SHARES:
        for misses in ("auto", "copy", "cpu"):
            slots = max(n_used, round(share * n_expert))
            yield {"name": f"{misses}-{slots}", "misses": misses, "slots": slots}
        for prefill in ("stream", "auto"):
            slots = max(n_used, round(share * n_expert))
            yield {"name": f"prefill-{prefill}-{slots}", "misses": "auto", "slots": slots, "prefill": prefill}
    yield {"name": "auto-all", "misses": "auto", "slots": n_expert}


def finish(steps: Steps, environment: Mapping[str, str], device: str) -> int:
    """The record, written by the Python that has the engine, and what was not as it should be."""
    cells = [result for result in steps.results if result["step"].startswith("matrix-") and "same" in result]
    bad = [result for result in cells if not result["same"]]
    failed = [result["step"] for result in steps.results if result.get("outcome", "ok") not in ("ok", "built before")]
    summary = {"cells": len(cells), "not_the_same": len(bad), "steps_that_failed": failed, "seconds_left": round(steps.left())}
    steps.note("summary", **summary)
    code = (
        "import json, sys; from benchmarks import record; "
        "record.RECORDS = __import__('pathlib').Path(sys.argv[2]); "
        "record.write('gpu', device=sys.argv[3], steps=[json.loads(line) for line in open(sys.argv[1])])"
    )
    steps.end = time.monotonic() + 20
    folder = build.ROOT / "benchmarks/records" if device.startswith("CUDA") else steps.folder
    command = [sys.executable, "-c", code, str(steps.folder / "results.jsonl"), str(steps.folder), device]
    steps.run("record", command, 20, environment=environment)
    if folder != steps.folder and (steps.folder / "gpu.jsonl").exists():
        with (folder / "gpu.jsonl").open("a", encoding="utf-8") as file:
            file.write((steps.folder / "gpu.jsonl").read_text(encoding="utf-8"))
    return 1 if bad or failed or not cells else 0


def _environment(steps: Steps, chosen: argparse.Namespace) -> Mapping[str, str] | None:
    if chosen.stand_in:
        paths = (build.ROOT / "src", build.ROOT)
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONUNBUFFERED": "1"}
    seconds = max(60.0, steps.left() - 60 * chosen.keep)
    return build.build(steps, chosen.work, chosen.source, seconds, flash_attention=chosen.flash_attention)


def _is_there(steps: Steps, environment: Mapping[str, str], device: str) -> bool:
    """Whether the engine loads, the core fits it, and the device is in it."""
    code = (
        "import json, sys; from slotpool import engine; from benchmarks.gpu.devices import present\n"
        "with present(sys.argv[1]):\n"
        "    print(json.dumps({'devices': [[d.name, d.description, d.free_bytes] for d in engine.devices()], "
        "'engine': engine.version(), 'abi': engine.abi_problem()}), flush=True)\n"
        "    sys.exit(bool(engine.abi_problem()))"
    )
    return steps.run("engine-loads", [sys.executable, "-c", code, device], 60, environment=environment)


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    out = os.environ.get("OUT")
    options.add_argument("--source", type=Path, help="llama-cpp-python's source package, or the folder that benchmarks.gpu.source made")
    options.add_argument("--work", type=Path, default=build.ROOT / "build/gpu", help="where things are built, and stay")
    options.add_argument("--out", type=Path, default=Path(out) if out else build.ROOT / "build/gpu-results", help="where results go")
    options.add_argument("--minutes", type=float, default=9.5, help="for everything")
    options.add_argument("--keep", type=float, default=3.0, help="minutes of these that the engine's build leaves for the rest")
    options.add_argument("--flash-attention", action="store_true", help="build its kernels too: some minutes more")
    options.add_argument("--stand-in", metavar="DEVICE", help="CHAOS0 or RPC0: nothing is built, the same steps on this machine")
    options.add_argument("--small", action="store_true", help="only the bundled model")
    options.add_argument("--types", type=int, default=len(_TYPES), help="so many types of the matrix")
    return options.parse_args()


if __name__ == "__main__":
    sys.exit(main())
