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
        for slots in SIZES:
            ids = _routing(2 * slots, seed=number)
            for policy in POLICIES:
                seconds, found = _timed(Pool(2 * slots, slots, policy), ids)
                samples[policy, slots].append(1e6 * seconds / N_EVENTS / N_MATMULS)
                hits[policy, slots] = found / N_EVENTS / N_USED
    results = [
        {"policy": policy, "slots": slots, "us_per_matmul": record.spread(samples[policy, slots]), "hit_rate": hits[policy, slots]}
        for policy, slots in cases
    ]
    return record.write("bookkeeping", n_used=N_USED, events=N_EVENTS, cases=results)


def line(made: dict[str, Any]) -> str:
    """The figures in one line."""
    return "bookkeeping per expert matmul: " + ", ".join(
        f"{one['policy']} {one['slots']} slots {one['us_per_matmul']['median']:.3f} us (hit rate {one['hit_rate']:.2f})"
        for one in made["cases"]
    )


def _timed(pool: Pool, ids: np.ndarray[Any, np.dtype[np.int32]]) -> tuple[float, int]:
    """CPU seconds that all events take in a pool that half of them have filled, and hits."""
    replay(pool, _events(ids[: N_EVENTS // 2]))
    events = _events(ids)
    # one thread does all of it, and other people's load on the machine is none of its speed
    started = time.process_time()
    hits = replay(pool, events)[0].hits
    return time.process_time() - started, hits


def _events(ids: np.ndarray[Any, np.dtype[np.int32]]) -> EventArrays:
    first = np.arange(0, ids.size + 1, N_USED, dtype=np.int64)
    return EventArrays(ids.ravel(), first, np.zeros(len(ids), np.uint8))


def _routing(n_expert: int, seed: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Distinct experts per event, drawn by weights 1/rank: int32 [N_EVENTS, N_USED]."""
    random = np.random.default_rng(seed)
    cumulative = np.cumsum(1.0 / np.arange(1, n_expert + 1))
    return np.array([_event(cumulative, random) for _ in range(N_EVENTS)], np.int32)


def _event(cumulative: np.ndarray[Any, np.dtype[np.float64]], random: np.random.Generator) -> list[int]:
    # to draw with replacement and pass over what is there already is to draw without: the time is that of N_USED experts, not of all
    found: dict[int, None] = {}
    while len(found) < N_USED:
        drawn = np.searchsorted(cumulative, random.random(4 * N_USED) * cumulative[-1])
        found.update(dict.fromkeys(drawn.tolist()))
    return list(found)[:N_USED]
