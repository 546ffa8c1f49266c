"""Every layout of experts that an architecture can have, at every kind of slot count, under real (random) routing.

The routing is watched in the plain run; the reference pool is fed with it and says what each counter must be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool.native import GroupCounts
from testkit import syn
from testkit.cases import LAYOUTS, N_USED, layout, random_tokens, varied_steps
from testkit.oracle import Batch, Oracle, Setup, check_pooled, last_graph, plan_of, pooled, rigged_ubatches

ModelFile = Callable[[syn.Spec], Path]

SETUP = Setup(n_ubatch=12)


def slot_counts(spec: syn.Spec) -> tuple[int, ...]:
    return (spec.n_expert_used, spec.n_expert_used + 1, spec.n_expert - 1, spec.n_expert)


SLOTS = ("k", "k+1", "E-1", "E")
KNOWN: dict[tuple[str, str], pytest.MarkDecorator] = {}
SPLIT_BY_SCALES = ("qwen3moe-scales", "llama-scales-without-gate", "nemotron_h_moe-scales")
"""A scale of gate or up is looked up by a GET_ROWS that stays on the CPU: it cuts the layer's split at every expert tensor."""


def layout_cells() -> list[object]:
    return [pytest.param(name, slots, marks=KNOWN.get((name, slots), ()), id=f"{name}-{slots}") for name in LAYOUTS for slots in SLOTS]


@pytest.mark.parametrize(("name", "slots"), layout_cells())
def test_layout_is_bit_equal_and_counts_as_the_reference(name: str, slots: str, model_file: ModelFile, oracle: Oracle) -> None:
    spec = LAYOUTS[name]
    path = model_file(spec)
    check_pooled(oracle, path, plan_of(path, slot_counts(spec)[SLOTS.index(slots)]), varied_steps(), SETUP)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_bit_equal_when_nodes_come_one_at_a_time(name: str, model_file: ModelFile, oracle: Oracle) -> None:
    path = model_file(LAYOUTS[name])
    setup = replace(SETUP, one_node_at_a_time=True)
    check_pooled(oracle, path, plan_of(path, LAYOUTS[name].n_expert_used + 1), varied_steps(), setup)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layer_is_one_split_per_routing_and_needs_no_copies(name: str, model_file: ModelFile) -> None:
    path = model_file(LAYOUTS[name])
    with pooled(path, plan := plan_of(path, LAYOUTS[name].n_expert_used), replace(SETUP, keeps_log=True)) as model:
        model.run((Batch((1,)),))
        splits = last_graph(model.first.log)
    ours = [split for split in splits if split.backend == "SLOTPOOL-CPU"]
    per_split = (
        [len(group.tensors) for group in plan.groups] if name not in SPLIT_BY_SCALES else [1] * sum(len(g.tensors) for g in plan.groups)
    )
    assert [split.ops.count("MUL_MAT_ID") for split in ours] == per_split
    assert all(split.n_inputs == 0 for split in splits)


def test_fused_and_separate_twins_have_the_same_routing(model_file: ModelFile, oracle: Oracle) -> None:
    """The twins hold the same numbers, so the pool must not be able to tell them apart but by its bytes."""
    counts = []
    for name in ("granite_swa", "granite_swa-fused"):
        path = model_file(LAYOUTS[name])
        counts.append(check_pooled(oracle, path, plan_of(path, N_USED + 1), varied_steps(), SETUP))
    separate, fused = counts
    assert [as_two_tensors(group) for group in separate] == fused


def as_two_tensors(group: GroupCounts) -> GroupCounts:
    """What a layer of three tensors would count with two of them in one."""
    generation, prompt = (replace(one, ranges_copied=one.ranges_copied * 2 // 3) for one in (group.generation, group.prompt))
    return replace(group, n_tensors=2, generation=generation, prompt=prompt)


@pytest.mark.parametrize("policy", ["decay", "follow", "lru"])
@pytest.mark.parametrize("slots", [4, 5, 15, 16])
def test_500_random_tokens_do_not_depend_on_the_number_of_slots(slots: int, policy: str, model_file: ModelFile, oracle: Oracle) -> None:
    """R02: slots below, at and above the working set."""
    path = model_file(layout("qwen3moe", n_layer=2, n_ctx=1024, types={"*": "Q4_K"}))
    steps = tuple(Batch((token,)) for token in random_tokens(500, seed=slots))
    check_pooled(oracle, path, plan_of(path, slots, policy=policy), steps, Setup(n_ctx=512))


@pytest.mark.parametrize("n_tokens", [1, 3, 9])
def test_the_same_chunk_expert_twice_in_a_row_is_one_lookup_and_two_rows(n_tokens: int, model_file: ModelFile, oracle: Oracle) -> None:
    """C39: grovemoe's chunk experts are shared by two experts each, so a token may ask for one twice."""
    spec = layout("grovemoe", n_layer=2, router="rigged")
    path = model_file(spec)
    plan = plan_of(path, {1: 4, 3: 12, 9: 16}[n_tokens])
    steps = (Batch((0,) * n_tokens), Batch((0,) * n_tokens))
    counts = check_pooled(oracle, path, plan, steps)
    # layer 0: experts 0 1 2 3, chunks 0 0 1 1; layer 1: experts 1 2 3 4, chunks 0 1 1 2
    lookups = [(group.generation + group.prompt).lookups for group in counts]
    rows = [(group.generation + group.prompt).rows_hit for group in counts]
    assert lookups == [2 * 4, 2 * 2, 2 * 4, 2 * 3]
    assert rows == [n_tokens * 4] * 4


def test_observed_routing_is_the_rigged_formula(model_file: ModelFile, oracle: Oracle) -> None:
    """The witness of this file agrees with the construction that test_cells.py relies on."""
    spec = layout("granite_swa", router="rigged")
    path, steps = model_file(spec), varied_steps()
    seen, known = oracle.routing(path, SETUP, steps), rigged_ubatches(spec, steps, SETUP.n_ubatch)
    assert [ubatch.n_tokens for ubatch in seen] == [ubatch.n_tokens for ubatch in known]
    for mine, theirs in zip(seen, known, strict=True):
        assert {place: ids.tolist() for place, ids in mine.ids.items()} == {place: ids.tolist() for place, ids in theirs.ids.items()}
