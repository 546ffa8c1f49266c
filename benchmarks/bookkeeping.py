"""The pool's bookkeeping alone: time per expert matmul, at 64 and at 4096 slots.

One event is the routing of one token in one layer (8 experts); its bookkeeping is done once for the layer's three expert
matmuls. Routing is skewed (Zipf) over twice as many experts as there are slots, so hits, misses and evictions all occur.
Reach: <= 2 us, and within 2x between the two sizes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks import record
from slotpool.native import EventArrays, Pool
from slotpool.native.replay import replay

N_USED = 8
N_MATMULS = 3
N_EVENTS = 20_000
ROUNDS = 9
SIZES = (64, 4096)
POLICIES = ("lru", "decay", "follow")


def run() -> dict[str, Any]:
    """Measures, writes the record and returns it."""
    cases = [(policy, slots) for policy in POLICIES for slots in SIZES]
    samples: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    hits: dict[tuple[str, int], float] = {}
    for number in range(ROUNDS):
        for policy, slots in cases:
            ids = _routing(2 * slots, seed=number)
            pool = Pool(2 * slots, slots, policy)
            replay(pool, _events(ids[: N_EVENTS // 2]))  # fill it first
            events = _events(ids)
            started = time.perf_counter()
            found = replay(pool, events)[0].hits
            seconds = time.perf_counter() - started
            samples[policy, slots].append(1e6 * seconds / N_EVENTS / N_MATMULS)
            hits[policy, slots] = found / N_EVENTS / N_USED
    results = [
        {"policy": policy, "slots": slots, "us_per_matmul": record.spread(samples[policy, slots]), "hit_rate": hits[policy, slots]}
        for policy, slots in cases
    ]
    return record.write("bookkeeping", n_used=N_USED, events=N_EVENTS, results=results)


def line(made: dict[str, Any]) -> str:
    """The figures in one line."""
    return "bookkeeping per expert matmul: " + ", ".join(
        f"{one['policy']} {one['slots']} slots {one['us_per_matmul']['median']:.3f} us (hit rate {one['hit_rate']:.2f})"
        for one in made["results"]
    )


def _events(ids: np.ndarray[Any, np.dtype[np.int32]]) -> EventArrays:
    first = np.arange(0, ids.size + 1, N_USED, dtype=np.int64)
    return EventArrays(ids.ravel(), first, np.zeros(len(ids), np.uint8))


def _routing(n_expert: int, seed: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Distinct experts per event, drawn by weights 1/rank: int32 [N_EVENTS, N_USED]."""
    random = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, n_expert + 1)
    # Gumbel top-k draws without replacement; in blocks, to keep memory small
    blocks = [
        np.argpartition(-(np.log(weights) + random.gumbel(size=(500, n_expert))), N_USED, axis=1)[:, :N_USED]
        for _ in range(N_EVENTS // 500)
    ]
    return np.ascontiguousarray(np.concatenate(blocks), dtype=np.int32)
