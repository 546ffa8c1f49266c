"""What the tests of probe, reservation and plan do in a process with chaos devices; everything comes back as plain values."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from slotpool import engine, model, native, plan, probe, speeds
from slotpool.budget import DEVICE_TAIL
from slotpool.cliff import find_cliff
from slotpool.native.probe import Matrices, Probe
from slotpool.plan import to_text
from slotpool.planning import Given, decide, document
from slotpool.reserve import Wanted, reserve
from slotpool.speeds import Speeds
from testkit.chaos import library
from testkit.chaos.process import here
from testkit.oracle import engine as calls
from testkit.oracle.script import Batch, Setup

EFFORT = probe.Effort(2, 0.002)
_KV = re.compile(r"(\S+) (?:KV|RS) buffer size = +([0-9.]+) MiB")
_COMPUTE = re.compile(r"(\S+) compute buffer size = +([0-9.]+) MiB")


def the_probe() -> Probe:
    return Probe(engine.function_address("ggml_backend_load"))


def link_traffic(n_copies: int) -> tuple[int, int, int]:
    """(slab bytes, bytes that came to the device, bytes that went back) for so many copies each way at least."""
    chaos, slab = here(), 64 * 1024
    assert chaos
    up, down = the_probe().copy("CHAOS0", 1 << 20, slab), the_probe().copy("CHAOS0", 1 << 20, slab, to_host=True)
    chaos.reset()
    amounts = []
    for work in (up, down):
        total = 0
        while total < n_copies * slab:
            total += work.repeat(0.0)[0]
        amounts.append(total)
    counters = chaos.counters()
    counted = [
        sum(value for name, value in vars(counters).items() if name.startswith(way) and name.endswith("_bytes"))
        for way in ("to_device", "to_host")
    ]
    assert amounts == counted, (amounts, counters)
    return slab, *amounts


def expert_nodes() -> tuple[int, list[tuple[str, int]], str]:
    """Bytes that one graph of three expert matmuls counts, the device's own log of its nodes, and its first hazard."""
    chaos = here()
    assert chaos
    work = the_probe().multiply("CHAOS0", Matrices(8, "Q8_0", 256, 64, 24, 4), 1)
    chaos.set(log_nodes=100)
    chaos.reset()
    amount, _ = work.repeat(0.0)
    return amount, [(node.op, node.n_tokens) for node in chaos.graph_log()], chaos.first_hazard()


def memory_left() -> tuple[int, int, int]:
    """Bytes taken on the device before, while every work is set up, and after all of them were freed."""
    chaos = here()
    assert chaos
    known = the_probe()
    before = chaos.counters().bytes_now
    works = [
        known.nodes("CHAOS0", 1),
        known.copy("CHAOS0", 1 << 20, 1 << 16),
        known.multiply("CHAOS0", Matrices(8, "Q8_0", 256, 64, 8, 2), 1),
    ]
    filled = known.fill("CHAOS0", 12345)
    during = chaos.counters().bytes_now
    for work in works:
        work.close()
    assert filled
    filled.close()
    return before, during, chaos.counters().bytes_now


def refusals() -> list[str]:
    """What the probe says where the device has too little memory."""
    found = []
    for make in (
        lambda known: known.multiply("CHAOS0", Matrices(8, "Q8_0", 256, 64, 400, 4), 1),
        lambda known: known.copy("CHAOS0", 1 << 20, 1 << 20),
        lambda known: known.copy("CHAOS0", 1 << 20, 1 << 10, pinned=True),
    ):
        try:
            make(the_probe())
        except Exception as error:  # whatever it is, the test looks at it
            found.append(f"{type(error).__name__}: {error}")
    return [*found, str(the_probe().fill("CHAOS0", 1 << 30))]


def all_speeds() -> list[tuple[str, str, str]]:
    """(subject, what, why it failed) of everything that is measured of the machine with its chaos devices."""
    subjects = replace(probe.of_machine(1), memory=4 << 20, slab_bytes=64 * 1024)
    found, failed = probe.measured(probe.tasks_of(subjects, the_probe()), EFFORT)
    return [(one.subject, one.what, "") for one in found] + [("", "", line) for line in failed]


def reserved_and_taken(path: Path, n_ctx: int, n_seq: int) -> tuple[dict[str, tuple[int, float]], dict[str, tuple[int, float]]]:
    """By device: (bytes that were predicted, MiB that a real context logs) of the KV cache and of compute buffers."""
    wanted = Wanted(n_ctx=n_ctx, n_batch=n_ctx, n_ubatch=128, n_seq=n_seq)
    found = reserve(model.read(path), wanted, backends=[str(library())])
    setup = Setup(n_ctx=n_ctx, n_ubatch=128, n_seq=n_seq, n_gpu_layers=99, placed=(("ffn_.*_exps", "CPU"),))
    with calls.loaded(path, setup) as loaded, calls.running(loaded, setup) as context:
        kv = _sums(_KV, context.log)
        compute = _sums(_COMPUTE, context.log)
    names = {one.name for one in found.devices}
    return ({n: (found.of(n).kv, kv.get(n, 0.0)) for n in names}, {n: (found.of(n).compute, compute.get(n, 0.0)) for n in names})


def _sums(pattern: re.Pattern[str], lines: list[str]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for device, size in pattern.findall("".join(lines)):
        name = "CPU" if device.startswith(("CPU", "CHAOS_Host")) else device
        sums[name] = sums.get(name, 0.0) + float(size)
    return sums


def planned_and_run(path: Path, n_slots: int) -> dict[str, Any]:
    """The plan for so many slots on the device, run: what it says, the bytes it took and the hit rate that came out."""
    from testkit.oracle.pooled import pooled

    chaos, facts = here(), model.read(path)
    assert chaos
    subjects = replace(probe.of_model(facts, 1), memory=4 << 20)
    tasks = [task for task in probe.tasks_of(subjects, the_probe()) if task.subject in ("CPU", "CHAOS0")]
    found, failed = probe.measured(tasks, EFFORT)
    assert not failed, failed
    wanted = Wanted(n_ctx=512, n_batch=512, n_ubatch=128)
    slab = sum(tensor.slab_bytes for tensor in facts.layers[0])
    tails = DEVICE_TAIL * len(facts.experts)
    reservation = reserve(facts, wanted, backends=[str(library())])
    on_device = reservation.of("CHAOS0")
    wanted_bytes = n_slots * len(facts.layers) * slab + tails
    chaos.set(total_bytes=on_device.weights + on_device.kv + on_device.compute + wanted_bytes + _OVERHEAD + _RAIL)
    device = next(one for one in engine.devices() if one.name == "CHAOS0")
    given = Given(
        facts,
        (device,),
        reservation,
        None,
        Speeds("chaos", tuple(found)),
        1 << 40,
        ["auto"],
        [wanted_bytes],
        [_RAIL],
        misses="copy",
        repack=False,
    )
    decision = decide(given)
    with pooled(path, decision.made, Setup(n_gpu_layers=99)) as pool:
        pool.run([Batch((token,)) for token in range(40)])
        groups = pool.counts()
        (memory,) = pool.session.devices()
    return {
        "document": document(decision),
        "text": to_text(decision.made),
        "slots": [group.slots for group in groups],
        "lookups": sum(group.generation.lookups for group in groups),
        "taken": memory.taken,
        "may_take": int(chaos.get("total_bytes")) - _RAIL,
        "peak": chaos.counters().bytes_peak,
    }


def groups_without_slots(path: Path) -> tuple[list[tuple[int, int, int]], int, int]:
    """A plan where only the first layer has slots: (slots, lookups, refused) by group, the device's peak, bytes of all experts."""
    from testkit.oracle.pooled import pooled

    chaos, facts = here(), model.read(path)
    assert chaos
    made = plan.make(facts, 8, devices=["CHAOS0"], misses="copy", rail=0)
    made = replace(made, groups=tuple(replace(group, slots=8 if group.layer == 0 else 0) for group in made.groups))
    chaos.reset()
    with pooled(path, made, Setup(n_gpu_layers=99)) as pool:
        pool.run([Batch((token,)) for token in range(20)])
        groups = pool.counts()
    counts = [(group.slots, group.generation.lookups, group.refused) for group in groups]
    return counts, chaos.counters().bytes_peak, facts.expert_bytes


def auto_loaded(path: Path, cache: Path, gain: float) -> dict[str, Any]:
    """`slotpool.load` with `slots="auto"` on a device with room for a third of the experts, where a pool of `gain` times plain is a go."""
    import os
    import warnings

    import slotpool
    from slotpool.predict import outlook

    chaos, facts = here(), model.read(path)
    assert chaos
    os.environ |= {"XDG_CACHE_HOME": str(cache), "GGML_BACKEND_PATH": str(library())}
    outlook.GAIN = gain
    wanted = Wanted(n_ctx=256, n_batch=512, n_ubatch=512)
    on_device = reserve(facts, wanted, backends=[str(library())]).of("CHAOS0")
    chaos.set(total_bytes=on_device.weights + on_device.kv + on_device.compute + facts.expert_bytes // 3 + _OVERHEAD)
    chaos.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        llm = slotpool.load(path, device="CHAOS0", rail=0, n_ctx=256, n_threads=1, exact=True)
    try:
        llm.eval([3, 1, 4])
        tokens = []
        for _ in range(8):
            tokens.append(int(llm.sample(temp=0.0)))
            llm.eval(tokens[-1:])
        stats = slotpool.stats(llm)
    finally:
        llm.close()
    return {
        "tokens": tokens,
        "stats": stats,
        "peak": chaos.counters().bytes_peak,
        "experts": facts.expert_bytes,
        "hazard": chaos.first_hazard(),
    }


_OVERHEAD = 1 << 20
"""Bytes of alignment and tails of buffers, which no reservation counts."""
_RAIL = 3 << 20


def cliff() -> tuple[str, list[tuple[int, int]], int]:
    """How filling the device ends: why, (taken, free) of the steps, bytes taken afterwards."""
    chaos = here()
    assert chaos
    found = find_cliff("CHAOS0", Path(native.CORE_PATH).parent / "data" / "demo.gguf", the_probe())
    return found.reason, [(step.taken, step.free) for step in found.steps], chaos.counters().bytes_now


NAMES = (speeds.NODE, speeds.LATENCY, speeds.UPLOAD, speeds.DOWNLOAD)
