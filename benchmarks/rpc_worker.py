"""One arm of `rpc_wire` in a process of its own: a model whose layers are on RPC servers, plain or with a pool, that decodes on command.

Speaks JSON lines: {"tokens": ids} decodes them one at a time and answers {"bits" (a hash of all logits), "argmax", "seconds", "counts"}.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from slotpool import engine
from slotpool import model as files
from slotpool import plan as plans
from slotpool.native import PhaseCounts
from testkit.oracle import engine as calls
from testkit.oracle.pooled import Pooled, pooled
from testkit.oracle.script import Batch, Setup


def main(path: Path, arm: dict[str, Any]) -> None:
    """Serves commands until stdin ends. An arm: `endpoints`, `slots` and `misses` of a pool, `placed` of a plain one."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    engine.add_rpc_servers(arm["endpoints"])
    with opened(path, arm) as (context, pool):
        for line in sys.stdin:
            if pool:
                pool.session.reset_counts()
            print(json.dumps(decoded(context, json.loads(line)["tokens"], pool)), file=answers, flush=True)


@contextmanager
def opened(path: Path, arm: dict[str, Any]) -> Iterator[tuple[calls.Context, Pooled | None]]:
    setup = Setup(n_gpu_layers=99, placed=tuple(map(tuple, arm.get("placed", ()))), n_ctx=1024)
    if not arm.get("misses"):
        with calls.loaded(path, setup) as model, calls.running(model, setup) as context:
            yield context, None
        return
    devices = [f"RPC{index}" for index in range(len(arm["endpoints"]))]
    made = plans.make(files.read(path), arm["slots"], devices=devices, misses=arm["misses"], rail=0)
    with pooled(path, made, setup) as pool:
        yield pool.first, pool


def decoded(context: calls.Context, tokens: list[int], pool: Pooled | None) -> dict[str, Any]:
    begin = time.perf_counter()
    bits = context.run([Batch((token,)) for token in tokens])
    seconds = time.perf_counter() - begin
    counts = sum((group.generation + group.prompt for group in pool.counts()), PhaseCounts()) if pool else PhaseCounts()
    return {
        "seconds": seconds,
        "bits": hashlib.sha256(np.concatenate(bits).tobytes()).hexdigest()[:16],
        "argmax": [int(row.view(np.float32).argmax()) for row in np.concatenate(bits)],
        "counts": vars(counts),
        "devices": sorted({group.device for group in pool.counts()}) if pool else [],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
