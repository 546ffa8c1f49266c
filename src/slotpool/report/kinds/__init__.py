"""The kinds of record that a report knows, one room each. A new kind needs a room and a line here."""

from slotpool.report.kinds import (
    bench,
    bookkeeping,
    device_grid,
    disk_resident,
    disk_tier,
    drift,
    gpu,
    other,
    predicted_speed,
    prompt_stream,
    rpc_wire,
    simulated,
    soak,
    speeds,
    warm_start,
)
from slotpool.report.kinds.kind import Kind

KINDS: dict[str, Kind] = {
    "disk_tier": disk_tier.KIND,
    "device_grid": device_grid.KIND,
    "gpu": gpu.KIND,
    "prompt_stream": prompt_stream.KIND,
    "drift": drift.KIND,
    "soak": soak.KIND,
    "disk_resident": disk_resident.KIND,
    "decode_resident": speeds.DECODE,
    "prompt_bypass": speeds.PROMPT,
    "prompt_guard_device": speeds.GUARD,
    "predicted_speed": predicted_speed.KIND,
    "simulate": simulated.KIND,
    "warm_start": warm_start.KIND,
    "rpc_wire": rpc_wire.KIND,
    "bookkeeping": bookkeeping.KIND,
    "bench": bench.KIND,
    "bench_overhead": Kind(
        "Bench overhead",
        "The bench's own work in what it times: its loop over tokens against a loop of nothing but llama.cpp's decode, one thread.",
        other.KIND.content,
    ),
}
"""In the order in which they are shown: what a pool is for, that it changes nothing, what it costs where it is not needed, the rest."""


def kind_of(name: str) -> Kind:
    """The kind called `name`; one that shows all samples where none is known."""
    return KINDS.get(name, other.KIND)


__all__ = ["KINDS", "Kind", "kind_of"]
