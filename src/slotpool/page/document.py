"""What is on a page as the `stats` document: totals since the session began, and what happened between two looks.

Adds nothing to what `pool_stats` says of a model in its own process: the same function writes both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slotpool import pool_stats
from slotpool.model import ExpertTensor
from slotpool.native import GroupCounts, PhaseCounts
from slotpool.page.files import Pages
from slotpool.page.layout import Facts, Page, PagedTensor
from slotpool.plan import Group, Off, Plan, PlannedFile


@dataclass(frozen=True)
class Look:
    """Pages, and when they were read (`at`, seconds of a clock that never goes back)."""

    found: Pages
    at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Window:
    """What a session did in so many seconds."""

    seconds: float
    stats: pool_stats.Stats


def stats_of(page: Page) -> pool_stats.Stats:
    """The document that `slotpool.stats` shows in the page's own process."""
    return _document(page.facts, page.counts)


def window(before: Look, after: Look, page: Page) -> Window:
    """What happened on `page`, one of `after`, since `before`: all of it where the session, or its counters, began since then."""
    earlier = next((one for one in before.found.pages if _session(one) == _session(page)), None)
    if earlier is None or earlier.facts.header.resets != page.facts.header.resets:
        return Window(after.at - before.at, stats_of(page))
    counts = tuple(_between(*pair) for pair in zip(earlier.counts, page.counts, strict=True))
    return Window(after.at - before.at, _document(page.facts, counts))


def _session(page: Page) -> tuple[int, ...]:
    header = page.facts.header
    return header.pid, header.process_started, header.session, header.started_ns, len(page.counts)


def _between(before: GroupCounts, after: GroupCounts) -> GroupCounts:
    """Never below zero: a count may be taken back, and a page may lie."""
    return replace(
        after,
        refused=max(0, after.refused - before.refused),
        admitted=max(0, after.admitted - before.admitted),
        evicted=max(0, after.evicted - before.evicted),
        warmed=max(0, after.warmed - before.warmed),
        generation=_not_negative(after.generation - before.generation),
        prompt=_not_negative(after.prompt - before.prompt),
    )


def _not_negative(counts: PhaseCounts) -> PhaseCounts:
    return PhaseCounts(**{name: max(0, value) for name, value in vars(counts).items()})


def _document(facts: Facts, counts: Sequence[GroupCounts]) -> pool_stats.Stats:
    why_buffered = facts.header.why_buffered
    repacked = [(one.group, one.slab_bytes) for one in facts.tensors if one.is_repacked and one.group is not None]
    n_bytes = sum(facts.groups[group].n_expert * slab_bytes for group, slab_bytes in repacked)
    return pool_stats.collect(_plan(facts), counts, _off(facts), why_buffered, facts.devices, repacked_bytes=n_bytes)


def _plan(facts: Facts) -> Plan:
    """As much of the plan as the document speaks of."""
    tensors: list[list[ExpertTensor]] = [[] for _ in facts.groups]
    for tensor in facts.tensors:
        if tensor.group is not None:
            group = facts.groups[tensor.group]
            tensors[tensor.group].append(_expert_tensor(tensor, group.layer, group.n_expert))
    groups = (
        Group(group.layer, group.pass_, group.device, group.planned_slots, group.n_expert, tuple(own))
        for group, own in zip(facts.groups, tensors, strict=True)
    )
    return Plan(
        groups=tuple(groups),
        off=tuple(Off(tensor.name, tensor.off_reason) for tensor in facts.tensors if tensor.group is None),
        files=(PlannedFile(facts.header.model, 0, 0),) if facts.header.is_on_disk else (),
    )


def _expert_tensor(tensor: PagedTensor, layer: int, n_expert: int) -> ExpertTensor:
    return ExpertTensor(
        name=tensor.name,
        layer=layer,
        role=tensor.role,
        type="",  # this and what follows is not on a page, and no document speaks of it
        ne=(0, 0, 0, 0),
        n_expert=n_expert,
        slab_bytes=tensor.slab_bytes,
        shard=0,
        offset=0,
        n_bytes=0,
    )


def _off(facts: Facts) -> dict[str, str]:
    return {
        tensor.name: facts.groups[tensor.group].off_reason or ("" if tensor.is_stored else pool_stats.ELSEWHERE)
        for tensor in facts.tensors
        if tensor.group is not None
    }
