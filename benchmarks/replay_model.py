"""The model of disk_tier: the shapes of gpt-oss-20b, routed as the recorded trace says. Written once into the user's cache folder."""

from __future__ import annotations

import json
import shutil
import sys
from os import environ
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import cgroup, traces
from testkit import syn

FIRST_EXAMPLE = traces.FIRST_JUDGED


def read_trace(n_tokens: int) -> NDArray[np.int64]:
    """Experts of `n_tokens` tokens of the recorded routing: [n_tokens, layers, experts used]."""
    with np.load(traces.recorded()) as found:
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


def written(spec: syn.Spec, trace: NDArray[np.int64]) -> Path:
    """The model's file in the cache folder; written when it is not there, or not whole."""
    folder = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slotpool/benchmarks"
    path = folder / f"replay-{spec.n_embd}.gguf"
    says = path.with_suffix(".json")
    what = {"spec": repr(spec), "first_example": FIRST_EXAMPLE, "n_tokens": len(trace)}
    if path.exists() and says.exists() and json.loads(says.read_text()) == what | {"size": path.stat().st_size}:
        say(f"the model is there already: {path}")
        return path
    _check_space(folder, spec)
    say(f"writing the model, once: {path}")
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


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
