"""The simulator on the gpt-oss-20b trace: hit rates as shares of Belady, and lookups a second of CPU time on one core.

Needs the shared trace; what is judged apart are the examples from 247 on, which chose no constant. Rounds are interleaved over the
policies, each a replay of all layers at 8 of 32 slots.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import record, traces
from slotpool import native, trace
from slotpool.native.replay import replay
from slotpool.simulate import Row, Settings, Slots, simulate
from slotpool.simulate.streams import streams_of

POLICIES = ("default", "decay", "lru", "belady", "belady-admit")
SLOTS = tuple(Slots(count=count) for count in (8, 12, 16))
TIMED = ("lru", "decay", "follow")
ROUNDS = 7


def run() -> dict[str, Any]:
    """Measures, writes the record and returns it."""
    path = traces.recorded()
    found = trace.load(path)
    assert isinstance(found, trace.Trace)
    share = found.segments[traces.FIRST_JUDGED].first_ubatch / found.n_ubatches
    return record.write(
        "simulate",
        trace=path.name,
        whole=_rates(found, Settings()),
        judged=_rates(found, Settings(train=share)),
        admit_all=_rates(found, Settings(admission="all")),
        lookups_per_second=_speeds(found),
    )


def line(made: dict[str, Any]) -> str:
    """The figures in one line."""
    default = {part: [row for row in made[part] if row["policy"] == "default"] for part in ("whole", "judged", "admit_all")}
    shares = ", ".join(f"{part} {' / '.join(format(row['share_of_belady'], '.4f') for row in rows)}" for part, rows in default.items())
    speeds = ", ".join(f"{name} {found['median'] / 1e6:.1f}" for name, found in made["lookups_per_second"].items())
    return f"share of Belady at 8 / 12 / 16 slots: {shares}; million lookups a second at 8 slots: {speeds}"


def _rates(found: trace.Trace, settings: Settings) -> list[dict[str, Any]]:
    rows: tuple[Row, ...] = simulate(found, POLICIES, SLOTS, settings).rows
    return [{name: getattr(row, name) for name in ("policy", "slots", "lookups", "hits", "hit_rate", "share_of_belady")} for row in rows]


def _speeds(found: trace.Trace) -> dict[str, dict[str, Any]]:
    streams = streams_of(found, is_global=False)
    seen = [stream.arrays(8, "memory") for stream in streams]
    samples: dict[str, list[float]] = {name: [] for name in TIMED}
    for _ in range(ROUNDS):
        for name in TIMED:
            # CPU time: one thread does all of it, and other people's load on the machine is none of its speed
            began = time.process_time()
            lookups = sum(replay(native.Pool(32, 8, name), events, "wanted")[0].lookups for events in seen)
            samples[name].append(lookups / (time.process_time() - began))
    return {name: record.spread(values) for name, values in samples.items()}
