"""The numbers a pooled run must show, worked out from the routing and the Python reference pool alone.

The rules it knows: a group serves an ubatch when min(k * tokens, n_expert) <= slots, else the ubatch is refused; the last layer,
which has the output rows only, follows its ubatch; more than eight tokens are a prompt; on the CPU every miss is copied. Experts on disk
are never refused: an ubatch that does not fit passes, and what it does not find in slots is read. On a device, or where the plan says
how misses are served, the most wanted misses come first: copied before use, or served by the host and admitted for later (settled
plans alone have numbers that follow from the routing, and `auto` has none: it goes by what was measured). With prompts that stream, an
ubatch that does not fit a device's slots passes as well; its last layer, where that has the output rows only, passes with rows that do
not fit themselves, or that are so many that llama.cpp would have copied their experts.
Slots begin with the group's warm set, which no phase counts; pinned experts leave an ubatch so many slots less to fit into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from slotpool.native import GroupCounts, PhaseCounts
from slotpool.plan import Group, Plan
from slotpool.policies import Lookup, ReferencePool, make_policy
from slotpool.profile import usable_slots
from testkit import syn

from .routing import Ids, Place, Ubatch
from .script import Steps, batches

GENERATION_TOKENS = 8
"""An ubatch of more tokens is a prompt."""
OFFLOADED_TOKENS = 32
"""From so many on llama.cpp copies experts to a chaos device itself, unless its knob says otherwise."""


def expected_counts(plan: Plan, *contexts: Sequence[Ubatch]) -> list[GroupCounts]:
    """The counters of every group of the plan, after the ubatches of each context; contexts have pools of their own."""
    counts = [_nothing(group) for group in plan.groups]
    for ubatches in contexts:
        counts = [_added(sofar, _group_counts(plan, group, ubatches)) for sofar, group in zip(counts, plan.groups, strict=True)]
    return counts


def total(counts: Sequence[GroupCounts]) -> tuple[PhaseCounts, PhaseCounts, int]:
    """Generation, prompt and refused over all groups."""
    generation = sum((group.generation for group in counts), PhaseCounts())
    prompt = sum((group.prompt for group in counts), PhaseCounts())
    return generation, prompt, sum(group.refused for group in counts)


def rigged_ubatches(spec: syn.Spec, steps: Steps, n_ubatch: int) -> list[Ubatch]:
    """The routing of a rigged model, from its formula: one sequence, batches cut every `n_ubatch` tokens."""

    def ids(layer: int, token: int) -> tuple[int, ...]:
        return syn.rigged_ids(spec, layer, token)

    return known_ubatches(syn.moe_layers(spec), ids, spec.n_expert_used, steps, n_ubatch)


def known_ubatches(layers: Sequence[int], ids_of: Callable[[int, int], Sequence[int]], k: int, steps: Steps, n_ubatch: int) -> list[Ubatch]:
    """The routing of a model whose ids are a function of (layer, token)."""
    made = []
    for batch in batches(steps):
        for first in range(0, len(batch.tokens), n_ubatch):
            rows = range(first, min(first + n_ubatch, len(batch.tokens)))
            outputs = [row for row in rows if batch.has_output(row)]
            ids: dict[Place, Ids] = {}
            for layer in layers:
                chosen = [ids_of(layer, batch.tokens[row]) for row in (outputs if layer == layers[-1] else rows)]
                ids[layer, "exps"] = np.array(chosen, np.int32).reshape(len(chosen), k)
            made.append(Ubatch(len(rows), ids))
    return made


def _group_counts(plan: Plan, group: Group, ubatches: Sequence[Ubatch]) -> GroupCounts:
    pool = ReferencePool(group.n_expert, group.slots, make_policy(plan.policy, plan.decay, group.n_expert, group.slots))
    counts = warmed(plan, group, pool, _nothing(group))
    usable = usable_slots(group.slots, group.n_expert, counts.pinned)
    for ubatch in ubatches:
        ids = ubatch.ids[group.layer, group.pass_]
        fits = _fits(group, usable, ubatch.n_tokens, ids)
        passes = not fits and plan.prefill == "stream" and (not _fits(group, usable, len(ids), ids) or len(ids) >= OFFLOADED_TOKENS)
        if not fits and not plan.reads_files and not passes and (len(ids) or plan.prefill == "bypass"):
            counts = replace(counts, refused=counts.refused + 1)
        elif len(ids):
            asked = ids.ravel().tolist()
            if passes:
                served = _passed(pool.passing(asked), ids.size, group)
            elif plan.devices or plan.misses != "copy":
                served = _served_on_device(plan, pool, asked, ubatch.n_tokens, group)
            else:
                served = _served((pool.event if fits else pool.passing)(asked), ids.size, group)
            counts = _added(counts, _in_phase(group, served, ubatch.n_tokens))
    return counts


def _fits(group: Group, usable: int, n_tokens: int, ids: Ids) -> bool:
    return min(ids.shape[1] * n_tokens, group.n_expert) <= usable


def _passed(lookups: Sequence[Lookup], n_rows: int, group: Group) -> PhaseCounts:
    """Experts that follow each other in memory are copied together."""
    missed = sorted(lookup.expert for lookup in lookups if not lookup.is_hit)
    n_ranges = sum(expert - 1 not in missed for expert in missed)
    return replace(_served(lookups, n_rows, group), ranges_copied=n_ranges * len(group.tensors))


def warmed(plan: Plan, group: Group, pool: ReferencePool, counts: GroupCounts) -> GroupCounts:
    """The counters of a pool that begins with what the plan has for it; `pool` has it then."""
    if not group.warm:
        return counts
    hottest = [(expert, millionths * 1e-6) for expert, millionths in group.warm]
    n_kept = plan.pin.of(group.slots, len(hottest)) if plan.pin else 0
    return replace(counts, warmed=len(pool.warm(hottest, n_kept=n_kept)), pinned=n_kept)


def _served_on_device(plan: Plan, pool: ReferencePool, asked: Sequence[int], n_tokens: int, group: Group) -> PhaseCounts:
    if plan.misses == "auto" or not plan.is_settled:
        raise ValueError(f"expected a settled plan whose misses follow a rule, found {plan.misses}, settled {plan.is_settled}")
    lookups = pool.look_up(asked)
    is_copied = plan.misses == "copy" or (plan.misses == "cpu" and n_tokens > GENERATION_TOKENS)
    n_admitted = 0
    for expert in pool.rank():
        if plan.misses == "frozen" and not pool.has_free_slot():
            break
        n_admitted += pool.admit(expert, may_refuse=not is_copied) is not None
    served = _served(lookups, len(asked), group)
    rows_copy, rows_cpu = (served.rows_copy, 0) if is_copied else (0, served.rows_copy)
    n_ranges = n_admitted * len(group.tensors)
    return replace(served, rows_copy=rows_copy, rows_cpu=rows_cpu, bytes_copied=n_admitted * group.slab_bytes, ranges_copied=n_ranges)


def _served(lookups: Sequence[Lookup], n_rows: int, group: Group) -> PhaseCounts:
    hits = [lookup for lookup in lookups if lookup.is_hit]
    n_misses, rows_hit = len(lookups) - len(hits), sum(lookup.n_rows for lookup in hits)
    return PhaseCounts(
        events=1,
        lookups=len(lookups),
        hits=len(hits),
        misses=n_misses,
        rows_hit=rows_hit,
        rows_copy=n_rows - rows_hit,
        rows_cpu=0,
        bytes_copied=n_misses * group.slab_bytes,
        bytes_saved=len(hits) * group.slab_bytes,
        ranges_copied=n_misses * len(group.tensors),
        empty_copies=int(not n_misses),
    )


def _in_phase(group: Group, served: PhaseCounts, n_tokens: int) -> GroupCounts:
    nothing = _nothing(group)
    return replace(nothing, prompt=served) if n_tokens > GENERATION_TOKENS else replace(nothing, generation=served)


def _nothing(group: Group) -> GroupCounts:
    return GroupCounts(
        layer=group.layer,
        pass_=group.pass_,
        device=group.device,
        slots=group.slots,
        n_expert=group.n_expert,
        n_tensors=len(group.tensors),
        slab_bytes=group.slab_bytes,
        refused=0,
        generation=PhaseCounts(),
        prompt=PhaseCounts(),
    )


def _added(counts: GroupCounts, more: GroupCounts) -> GroupCounts:
    return replace(
        counts,
        refused=counts.refused + more.refused,
        generation=counts.generation + more.generation,
        prompt=counts.prompt + more.prompt,
        warmed=counts.warmed + more.warmed,
        pinned=counts.pinned + more.pinned,
    )
