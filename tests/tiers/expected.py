"""The numbers of two tiers, worked out from the routing and the Python reference pools alone, and runs that must show them.

The rules it knows: the pool of a device is asked first, the RAM tier for what it did not have; an event that does not fit the device's
slots passes the RAM tier and is the CPU's; a miss that has no slot in RAM is not admitted for later. Plans are settled: what was admitted
is there by the next event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slotpool import model as files
from slotpool import plan as plans
from slotpool.native import GroupCounts, PhaseCounts
from slotpool.plan import Group, Plan
from slotpool.policies import Lookup, ReferencePool, make_policy
from slotpool.profile import usable_slots
from testkit.chaos import Counters
from testkit.chaos.process import here
from testkit.oracle import Bits, Setup, Steps, Ubatch, pooled, warmed

ON_DEVICE = Setup(n_gpu_layers=99, tensor_split=(1.0, 0.0), load_mode="none", n_ubatch=256, n_ctx=1024)
GENERATION_TOKENS = 8


def plan_in_tiers(
    path: Path, slots: int | str, *, budget: int | None = None, misses: str = "copy", devices: Sequence[str] = ("CHAOS0",)
) -> Plan:
    """A poisoned, settled plan with slots on devices, and `budget` bytes of RAM for slots behind them."""
    made = plans.make(
        files.read(path), slots, poison=True, devices=devices, misses=misses, rail=0, ram_budget="auto" if budget is None else budget
    )
    return replace(made, is_settled=True)


@dataclass(frozen=True)
class TierRun:
    """What a run was: bits, counters of both tiers, what the device counted, bytes of RAM that were taken and allowed."""

    bits: list[Bits]
    device: list[GroupCounts]
    ram: list[GroupCounts]
    counters: Counters | None
    hazard: str
    taken: int


def run_in_tiers(path: Path, plan: Plan, setup: Setup, steps: Steps) -> TierRun:
    """In a process with devices."""
    chaos = here()
    with pooled(path, plan, setup) as model:
        if chaos:
            chaos.reset()
        bits = model.run(steps)
        taken = {one.name: one.taken for one in model.session.devices()}["CPU"]
        return TierRun(
            bits,
            model.counts(),
            model.session.ram_counts(),
            chaos.counters() if chaos else None,
            chaos.first_hazard() if chaos else "",
            taken,
        )


def expected_tiers(plan: Plan, ram_slots: Sequence[int], ubatches: Sequence[Ubatch]) -> tuple[list[GroupCounts], list[GroupCounts]]:
    """The counters of the device's pools and of the RAM tier, by group. Modes copy and cpu."""
    both = [_of_group(plan, group, n_ram, ubatches) for group, n_ram in zip(plan.groups, ram_slots, strict=True)]
    return [device for device, _ in both], [ram for _, ram in both]


def _of_group(plan: Plan, group: Group, n_ram: int, ubatches: Sequence[Ubatch]) -> tuple[GroupCounts, GroupCounts]:
    pool = ReferencePool(group.n_expert, group.slots, make_policy(plan.policy, plan.decay, group.n_expert, group.slots))
    ram = ReferencePool(group.n_expert, n_ram, make_policy(plan.policy, plan.decay, group.n_expert, n_ram)) if n_ram else None
    on_device, in_ram = warmed(plan, group, pool, _nothing(group, group.slots)), _nothing(group, n_ram)
    usable = usable_slots(group.slots, group.n_expert, on_device.pinned)
    rest = [(expert, millionths * 1e-6) for expert, millionths in group.warm[group.slots :]]
    if ram and rest:
        in_ram = replace(in_ram, warmed=len(ram.warm(rest)))
    for ubatch in ubatches:
        ids = ubatch.ids[group.layer, group.pass_]
        if not len(ids):
            continue
        rows = ids.ravel().tolist()
        if min(ids.shape[1] * ubatch.n_tokens, group.n_expert) > usable:
            in_ram = _added(in_ram, ubatch, _counted(_asked(ram, rows, is_passing=True), group, len(rows)))
            on_device = _added(on_device, ubatch, PhaseCounts(events=1, rows_cpu=len(rows)))
            continue
        lookups = pool.look_up(rows)
        missed = [lookup.expert for lookup in lookups if not lookup.is_hit]
        found = _asked(ram, [expert for expert in rows if expert in missed], is_passing=False) if missed else []
        if missed:
            in_ram = _added(in_ram, ubatch, _counted(found, group, sum(lookup.n_rows for lookup in found)))
        is_copied = plan.misses == "copy" or ubatch.n_tokens > GENERATION_TOKENS
        kept = {lookup.expert for lookup in found if lookup.slot >= 0}
        admitted = [one for one in pool.rank() if (is_copied or one in kept) and pool.admit(one, may_refuse=not is_copied)]
        hits = sum(lookup.is_hit for lookup in lookups)
        rows_hit = sum(lookup.n_rows for lookup in lookups if lookup.is_hit)
        made = PhaseCounts(
            events=1,
            lookups=len(lookups),
            hits=hits,
            misses=len(missed),
            rows_hit=rows_hit,
            rows_copy=len(rows) - rows_hit if is_copied else 0,
            rows_cpu=0 if is_copied else len(rows) - rows_hit,
            bytes_copied=len(admitted) * group.slab_bytes,
            bytes_saved=hits * group.slab_bytes,
            ranges_copied=len(admitted) * len(group.tensors),
            empty_copies=int(not missed),
        )
        on_device = _added(on_device, ubatch, made)
    return on_device, in_ram


def _asked(ram: ReferencePool | None, rows: list[int], *, is_passing: bool) -> list[Lookup]:
    if ram is None:
        return [Lookup(one, -1, -1, rows.count(one), False) for one in dict.fromkeys(rows)]
    return ram.passing(rows) if is_passing else ram.event(rows)


def _counted(lookups: Sequence[Lookup], group: Group, n_rows: int) -> PhaseCounts:
    hits = [lookup for lookup in lookups if lookup.is_hit]
    rows_hit = sum(lookup.n_rows for lookup in hits)
    n_misses = len(lookups) - len(hits)
    return PhaseCounts(
        events=1,
        lookups=len(lookups),
        hits=len(hits),
        misses=n_misses,
        rows_hit=rows_hit,
        rows_copy=n_rows - rows_hit,
        bytes_copied=n_misses * group.slab_bytes,
        bytes_saved=len(hits) * group.slab_bytes,
        ranges_copied=n_misses * len(group.tensors),
        empty_copies=int(not n_misses),
    )


def _nothing(group: Group, slots: int) -> GroupCounts:
    names = (group.layer, group.pass_, group.device, slots, group.n_expert, len(group.tensors), group.slab_bytes, 0)
    return GroupCounts(*names, generation=PhaseCounts(), prompt=PhaseCounts())


def _added(counts: GroupCounts, ubatch: Ubatch, made: PhaseCounts) -> GroupCounts:
    if ubatch.n_tokens > GENERATION_TOKENS:
        return replace(counts, prompt=counts.prompt + made)
    return replace(counts, generation=counts.generation + made)
