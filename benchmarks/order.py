"""The benchmarks in the order in which `make bench` runs them, and about how long each takes. Runs nothing.

The short ones come first: what is broken shows early. Nothing runs beside another, which would be in its figures.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A module of this package with `run()`, which measures and writes the record, and `line(made)`. `seconds`: on two cores."""

    name: str
    seconds: int
    what: str


ALL = (
    Entry("bookkeeping", 10, "the pool's own work, without a model"),
    Entry("warm_start", 60, "hits of the first tokens, cold and warm"),
    Entry("bench", 60, "slotpool bench on the bundled model, with every kind of arm"),
    Entry("bench_overhead", 300, "what the bench adds to what it times; valgrind for one figure"),
    Entry("prompt_bypass", 60, "prompts beside a pool"),
    Entry("drift", 120, "the bundled model's logits beside plain llama.cpp's"),
    Entry("decode_resident", 210, "every expert in a slot"),
    Entry("simulate", 210, "hit rates and the simulator's speed; needs the recorded routing"),
    Entry("rpc_wire", 150, "bytes to an RPC server"),
    Entry(
        "prompt_guard_device",
        240,
        "prompts of an unmodified program; needs llama.cpp's programs (make programs), and valgrind for one figure",
    ),
    Entry("disk_resident", 420, "experts on disk, all in slots"),
    Entry("predicted_speed", 420, "what the plan predicts, in declared time"),
    Entry("prompt_stream", 300, "prompts through a device's pool, in declared time; needs the recorded routing"),
    Entry("soak", 930, "a long session with the bundled model"),
    Entry("device_grid", 900, "misses on a device, in declared time"),
    Entry("disk_tier", 2040, "a model larger than memory; needs root for control groups, 8 GB of disk, the recorded routing"),
)


def entry(name: str) -> Entry | None:
    """The benchmark called `name`."""
    return next((one for one in ALL if one.name == name), None)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
