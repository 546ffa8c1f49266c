"""What the pool did, in the form that users and other tools read: the `stats` document of docs/design/surface.md.

Only adds up and names; the counters are the core's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from slotpool.native import GroupCounts, PhaseCounts
from slotpool.plan import Group, Plan


class Served(TypedDict):
    """Rows, (token, k) pairs, by where they were computed."""

    hit: int
    copy: int
    cpu: int


class Phase(TypedDict):
    """The counters of one phase, prompt or generation."""

    events: int
    lookups: int
    hits: int
    misses: int
    hit_rate: float
    bytes_copied: int
    bytes_saved: int
    served: Served
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
    },
)


class Tensor(TypedDict):
    """One expert tensor: `pooled 24/128` or `off`, and why."""

    name: str
    state: str
    reason: str


class Stats(TypedDict):
    """`lookups` = `hits` + `misses`: distinct experts per (layer, ubatch). `refused` counts (layer, ubatch) pairs that went the
    stock path because they did not fit. Bytes are slabs copied into slots (with experts on disk: read), and slabs that did not have
    to be. `store` is where every expert always is: `memory` or `disk`; `why_buffered` says why a disk is not read directly.
    `wait_ms` is the time that the compute waited for slabs."""

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
    pooled_tensors: int
    expert_tensors: int
    slot_bytes: int
    store: str
    why_buffered: str
    layers: list[Layer]
    tensors: list[Tensor]


def collect(plan: Plan, counts: Iterable[GroupCounts], off: Mapping[str, str], why_buffered: str = "") -> Stats:
    """The document for a model under `plan`. `off` says why a planned tensor is not pooled after all; empty when it is."""
    groups = list(counts)
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
        bytes_copied=total.bytes_copied,
        bytes_saved=total.bytes_saved,
        exact=all(_is_exact(group) for group in groups),
        served=_served(total),
        generation=_phase(generation),
        prompt=_phase(prompt),
        pooled_tensors=sum(tensor["state"] != "off" for tensor in tensors),
        expert_tensors=len(tensors),
        slot_bytes=sum(group.slots * group.slab_bytes for group in groups),
        store="disk" if plan.reads_files else "memory",
        why_buffered=why_buffered,
        layers=[_layer(group) for group in groups],
        tensors=tensors,
    )


def _is_exact(group: GroupCounts) -> bool:
    """Whether hits and misses went through the same kernels: the rows of other devices' pools that the CPU computed did not."""
    return group.device == "CPU" or (group.generation + group.prompt).rows_cpu == 0


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
        served=_served(counts),
        wait_ms=counts.wait_ns / 1e6,
    )


def _layer(group: GroupCounts) -> Layer:
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
        "bytes_copied": total.bytes_copied,
        "bytes_saved": total.bytes_saved,
    }


def _tensors(plan: Plan, counts: Sequence[GroupCounts], off: Mapping[str, str]) -> list[Tensor]:
    slots = [found.slots for found in counts] or [group.slots for group in plan.groups]
    devices = [found.device or group.device for found, group in zip(counts, plan.groups, strict=False)] or [g.device for g in plan.groups]
    planned = [
        _tensor(tensor.name, group, device, n_slots, plan.reads_files, off.get(tensor.name, ""))
        for group, device, n_slots in zip(plan.groups, devices, slots, strict=True)
        for tensor in group.tensors
    ]
    return planned + [Tensor(name=one.tensor, state="off", reason=one.reason) for one in plan.off]


def _tensor(name: str, group: Group, device: str, n_slots: int, is_on_disk: bool, off_reason: str) -> Tensor:
    if off_reason:
        return Tensor(name=name, state="off", reason=f"off: {off_reason}")
    reason = f"slots on {device}"
    if is_on_disk:
        reason = f"{reason}, experts on disk"
    if n_slots < group.slots:
        rest = ": every use is read from disk" if is_on_disk and not n_slots else ""
        reason = f"{reason}; {group.slots} were planned, {n_slots} fit the memory{rest}"
    return Tensor(name=name, state=f"pooled {n_slots}/{group.n_expert}", reason=reason)
