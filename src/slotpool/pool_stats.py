"""What the pool did, in the form that users and other tools read: the `stats` document of docs/design/surface.md.

Only adds up and names; the counters are the core's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from slotpool.native import DeviceMemory, GroupCounts, PhaseCounts
from slotpool.plan import Group, Plan

ELSEWHERE = "not in the store: the loader put it elsewhere (a device, an override), or does not use it"
"""Why a planned tensor is not pooled that the loader did not give to us."""


class Served(TypedDict):
    """Rows, (token, k) pairs, by where they were computed."""

    hit: int
    copy: int
    cpu: int


class Phase(TypedDict):
    """The counters of one phase, prompt or generation. `ranges_copied` are copies: slabs that follow each other in memory go in one where
    they only pass. `empty_copies` are events, (layer, ubatch) pairs, that found every expert in a slot."""

    events: int
    lookups: int
    hits: int
    misses: int
    hit_rate: float
    bytes_copied: int
    bytes_saved: int
    ranges_copied: int
    empty_copies: int
    served: Served
    wait_ms: float
    copy_ms: float
    update_ms: float
    hit_compute_ms: float
    miss_compute_ms: float


class RamLayer(TypedDict):
    """The RAM tier of one layer: what the pool of its device did not have was looked for in so many slots, or read from disk."""

    slots: int
    hits: int
    misses: int
    bytes_read: int


class Ram(TypedDict):
    """The RAM tier, between a disk and the pools of devices: `lookups` = `hits` + `misses` are misses of those pools, and the experts of
    prompts that do not fit them. Bytes were read from disk; `wait_ms` is what the compute waited for them."""

    slot_bytes: int
    lookups: int
    hits: int
    misses: int
    hit_rate: float
    bytes_read: int
    wait_ms: float


# `pass` is a word of Python, so this one cannot be written as a class
Layer = TypedDict(
    "Layer",
    {
        "layer": int,
        "pass": str,
        "device": str,
        "slots": int,
        "n_expert": int,
        "lookups": int,
        "hits": int,
        "misses": int,
        "refused": int,
        "bytes_copied": int,
        "bytes_saved": int,
        "admitted": int,
        "evicted": int,
        "uploads_in_flight": int,
        "warmed": int,
        "pinned": int,
        "ram": RamLayer | None,
    },
)


class Tensor(TypedDict):
    """One expert tensor: `pooled 24/128` or `off`, and why. Its lookups are its layer's; its bytes are its own slabs."""

    name: str
    state: str
    reason: str
    pinned: int
    hits: int
    misses: int
    refused: int
    bytes_copied: int
    bytes_saved: int


class Device(TypedDict):
    """A device that holds slots, and what its layers did. `budget`, `taken` and `free` (when slots were allocated) are bytes, None where
    nobody has asked: with experts in host memory the CPU has no budget. `staging`, of what was taken, is room for experts of prompts that
    only pass through; 0 with `--prefill stream` means that there was none, and the CPU computes those prompts."""

    name: str
    slot_bytes: int
    budget: int | None
    taken: int
    free: int | None
    staging: int
    lookups: int
    hits: int
    misses: int
    refused: int
    bytes_copied: int
    bytes_saved: int
    copy_us: float
    cpu_us: float
    hits_us: float
    fetch_us: float
    miss_reason: str


class Stats(TypedDict):
    """`lookups` = `hits` + `misses`: distinct experts per (layer, ubatch). `refused` counts (layer, ubatch) pairs that went the
    stock path because they did not fit. Bytes are slabs copied into slots (with experts on disk: read), and slabs that did not have
    to be. `store` is where every expert always is: `memory` or `disk`; `why_buffered` says why a disk is not read directly.
    `repacked_bytes` are experts whose tensors' slots hold them as llama.cpp repacks weights.
    `ram` is None without a RAM tier behind a device, and for readers in other processes, whose page does not have it.
    Of the times, `wait_ms` is what the compute waited for slabs. `admitted` and `evicted` count experts that got and lost a slot;
    `warmed` those that slots began with (a profile): no phase has them, and their bytes are in the totals of `bytes_copied` alone.
    `pinned` is how many slots hold experts that are never evicted."""

    lookups: int
    hits: int
    misses: int
    refused: int
    hit_rate: float
    bytes_copied: int
    bytes_saved: int
    exact: bool
    served: Served
    generation: Phase
    prompt: Phase
    admitted: int
    evicted: int
    uploads_in_flight: int
    warmed: int
    pinned: int
    pooled_tensors: int
    expert_tensors: int
    slot_bytes: int
    store: str
    why_buffered: str
    repacked_bytes: int
    ram: Ram | None
    devices: list[Device]
    layers: list[Layer]
    tensors: list[Tensor]


def collect(
    plan: Plan,
    counts: Iterable[GroupCounts],
    off: Mapping[str, str],
    why_buffered: str = "",
    devices: Sequence[DeviceMemory] = (),
    ram: Sequence[GroupCounts] = (),
    repacked_bytes: int = 0,
) -> Stats:
    """The document for a model under `plan`. `off` says why a planned tensor is not pooled after all; empty when it is.

    `ram` has the RAM tier of every group, or nothing.
    """
    groups = list(counts)
    tiers = [one if one.slots >= 0 else None for one in ram] or [None] * len(groups)
    generation = sum((group.generation for group in groups), PhaseCounts())
    prompt = sum((group.prompt for group in groups), PhaseCounts())
    total = generation + prompt
    tensors = _tensors(plan, groups, off)
    return Stats(
        lookups=total.lookups,
        hits=total.hits,
        misses=total.misses,
        refused=sum(group.refused for group in groups),
        hit_rate=_rate(total),
        bytes_copied=sum(map(_copied, groups)),
        bytes_saved=total.bytes_saved,
        exact=all(_is_exact(group) for group in groups),
        served=_served(total),
        generation=_phase(generation),
        prompt=_phase(prompt),
        admitted=sum(group.admitted for group in groups),
        evicted=sum(group.evicted for group in groups),
        uploads_in_flight=sum(group.uploads_in_flight for group in groups),
        warmed=sum(group.warmed for group in groups),
        pinned=sum(group.pinned for group in groups),
        pooled_tensors=sum(tensor["state"] != "off" for tensor in tensors),
        expert_tensors=len(tensors),
        slot_bytes=sum(group.slots * group.slab_bytes for group in groups),
        store="disk" if plan.reads_files else "memory",
        why_buffered=why_buffered,
        repacked_bytes=repacked_bytes,
        ram=_ram([one for one in tiers if one]),
        devices=[_device(device, [group for group in groups if group.device == device.name]) for device in devices],
        layers=[_layer(group, tier) for group, tier in zip(groups, tiers, strict=True)],
        tensors=tensors,
    )


def _is_exact(group: GroupCounts) -> bool:
    """Whether hits and misses went through the same kernels: the rows of other devices' pools that the CPU computed did not."""
    return group.device == "CPU" or (group.generation + group.prompt).rows_cpu == 0


def _copied(group: GroupCounts) -> int:
    """Bytes copied into slots: for misses, and for what the slots began with."""
    return (group.generation + group.prompt).bytes_copied + group.warmed * group.slab_bytes


def _rate(counts: PhaseCounts) -> float:
    return counts.hits / counts.lookups if counts.lookups else 0.0


def _served(counts: PhaseCounts) -> Served:
    return Served(hit=counts.rows_hit, copy=counts.rows_copy, cpu=counts.rows_cpu)


def _phase(counts: PhaseCounts) -> Phase:
    return Phase(
        events=counts.events,
        lookups=counts.lookups,
        hits=counts.hits,
        misses=counts.misses,
        hit_rate=_rate(counts),
        bytes_copied=counts.bytes_copied,
        bytes_saved=counts.bytes_saved,
        ranges_copied=counts.ranges_copied,
        empty_copies=counts.empty_copies,
        served=_served(counts),
        wait_ms=counts.wait_ns / 1e6,
        copy_ms=counts.copy_ns / 1e6,
        update_ms=counts.update_ns / 1e6,
        hit_compute_ms=counts.hit_compute_ns / 1e6,
        miss_compute_ms=counts.miss_compute_ns / 1e6,
    )


def _device(memory: DeviceMemory, groups: Sequence[GroupCounts]) -> Device:
    total = sum((group.generation + group.prompt for group in groups), PhaseCounts())
    return Device(
        name=memory.name,
        slot_bytes=sum(group.slots * group.slab_bytes for group in groups),
        budget=memory.budget,
        taken=memory.taken,
        free=memory.free,
        staging=memory.staging,
        lookups=total.lookups,
        hits=total.hits,
        misses=total.misses,
        refused=sum(group.refused for group in groups),
        bytes_copied=sum(map(_copied, groups)),
        bytes_saved=total.bytes_saved,
        copy_us=memory.copy_ns / 1e3,
        cpu_us=memory.host_ns / 1e3,
        hits_us=memory.hits_ns / 1e3,
        fetch_us=memory.fetch_ns / 1e3,
        miss_reason=_miss_reason(memory),
    )


def _miss_reason(memory: DeviceMemory) -> str:
    """Why misses are served as they are under `auto`, in the numbers that decide; empty while there are none."""
    if not memory.copy_ns or not memory.host_ns:
        return ""
    return (
        f"an expert of a layer takes {memory.copy_ns / 1e3:.0f} us to copy and {memory.host_ns / 1e3:.0f} us on the CPU, "
        f"an event of hits {memory.hits_ns / 1e3:.0f} us, the CPU's part {memory.fetch_ns / 1e3:.0f} us more"
    )


def _ram(tiers: Sequence[GroupCounts]) -> Ram | None:
    if not tiers:
        return None
    total = sum((tier.generation + tier.prompt for tier in tiers), PhaseCounts())
    return Ram(
        slot_bytes=sum(tier.slots * tier.slab_bytes for tier in tiers),
        lookups=total.lookups,
        hits=total.hits,
        misses=total.misses,
        hit_rate=_rate(total),
        bytes_read=sum(map(_copied, tiers)),
        wait_ms=total.wait_ns / 1e6,
    )


def _ram_layer(tier: GroupCounts) -> RamLayer:
    total = tier.generation + tier.prompt
    return RamLayer(slots=tier.slots, hits=total.hits, misses=total.misses, bytes_read=_copied(tier))


def _layer(group: GroupCounts, tier: GroupCounts | None) -> Layer:
    total = group.generation + group.prompt
    return {
        "layer": group.layer,
        "pass": group.pass_,
        "device": group.device,
        "slots": group.slots,
        "n_expert": group.n_expert,
        "lookups": total.lookups,
        "hits": total.hits,
        "misses": total.misses,
        "refused": group.refused,
        "bytes_copied": _copied(group),
        "bytes_saved": total.bytes_saved,
        "admitted": group.admitted,
        "evicted": group.evicted,
        "uploads_in_flight": group.uploads_in_flight,
        "warmed": group.warmed,
        "pinned": group.pinned,
        "ram": _ram_layer(tier) if tier else None,
    }


def _tensors(plan: Plan, counts: Sequence[GroupCounts], off: Mapping[str, str]) -> list[Tensor]:
    slots = [found.slots for found in counts] or [group.slots for group in plan.groups]
    devices = [found.device or group.device for found, group in zip(counts, plan.groups, strict=False)] or [g.device for g in plan.groups]
    done: Sequence[GroupCounts | None] = counts or [None] * len(plan.groups)
    planned = [
        _tensor(tensor.name, *_state(group, device, n_slots, plan.reads_files, off.get(tensor.name, ""), found), tensor.slab_bytes, found)
        for group, device, n_slots, found in zip(plan.groups, devices, slots, done, strict=True)
        for tensor in group.tensors
    ]
    return planned + [_tensor(one.tensor, "off", one.reason) for one in plan.off]


def _tensor(name: str, state: str, reason: str, slab_bytes: int = 0, group: GroupCounts | None = None) -> Tensor:
    total = group.generation + group.prompt if group else PhaseCounts()
    return Tensor(
        name=name,
        state=state,
        reason=reason,
        pinned=group.pinned if group else 0,
        hits=total.hits,
        misses=total.misses,
        refused=group.refused if group else 0,
        bytes_copied=_share(_copied(group) if group else 0, slab_bytes, group),
        bytes_saved=_share(total.bytes_saved, slab_bytes, group),
    )


def _share(n_bytes: int, slab_bytes: int, group: GroupCounts | None) -> int:
    """Of a group's bytes, those of one tensor: they move together, a slab of each."""
    return n_bytes * slab_bytes // group.slab_bytes if group and group.slab_bytes else 0


def _state(group: Group, device: str, n_slots: int, is_on_disk: bool, off_reason: str, found: GroupCounts | None) -> tuple[str, str]:
    if off_reason:
        return "off", f"off: {off_reason}"
    reason = f"slots on {device}"
    if is_on_disk:
        reason = f"{reason}, experts on disk"
    if n_slots < group.slots:
        rest = ": every use is read from disk" if is_on_disk and not n_slots else ""
        reason = f"{reason}; {group.slots} were planned, {n_slots} fit the memory{rest}"
    if found and found.pinned:
        reason = f"{reason}; {found.pinned} pinned"
    return f"pooled {n_slots}/{group.n_expert}", reason
