"""Prompts and the pool: what does not fit leaves every slot as it was, what fits is served, and the last layer follows its ubatch.

Routing is rigged: token 0 takes experts 0 to 3 in layer 0, token 1 the next four, and so on, whatever stands around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool.native import GroupCounts, PhaseCounts
from testkit import syn
from testkit.oracle import (
    ALL,
    LAST,
    NONE,
    Batch,
    Oracle,
    Setup,
    Steps,
    assert_same_bits,
    check_pooled,
    expected_counts,
    plan_of,
    pooled,
    rigged_ubatches,
    steps_of,
    total,
)

ModelFile = Callable[[syn.Spec], Path]

N_LAYER, N_EXPERT, N_USED = 3, 16, 4
SPEC = syn.Spec(n_layer=N_LAYER, n_expert=N_EXPERT, n_expert_used=N_USED, types={"*": "Q4_K"}, router="rigged")
SLAB = 3 * 256 * 256 // 256 * 144  # gate, up and down of one expert, Q4_K: 144 bytes per 256 values


def counted(events: int, lookups: int, hits: int, rows_hit: int, rows_copy: int) -> PhaseCounts:
    """All misses are in the first event, if there are any."""
    misses = lookups - hits
    n_ranges, n_empty = 3 * misses, events - (1 if misses else 0)  # gate, up and down of a miss
    return PhaseCounts(events, lookups, hits, misses, rows_hit, rows_copy, 0, misses * SLAB, hits * SLAB, n_ranges, n_empty)


def per_layer(counts: list[GroupCounts]) -> list[tuple[PhaseCounts, PhaseCounts, int]]:
    return [(group.generation, group.prompt, group.refused) for group in counts]


@pytest.mark.parametrize("outputs", [ALL, LAST, NONE])
@pytest.mark.parametrize("n_ubatch", [16, 64, 100])
@pytest.mark.parametrize("slots", [4, 5, 8, 15])
def test_prompt_of_three_ubatches_leaves_every_slot_untouched(
    slots: int, n_ubatch: int, outputs: str, model_file: ModelFile, oracle: Oracle
) -> None:
    """R10: the same hits right after the prompt as right before it, and not one lookup, hit or byte for the prompt itself."""
    path, setup = model_file(SPEC), Setup(n_ubatch=n_ubatch)
    prompt = Batch(tuple(i % 60 for i in range(3 * n_ubatch)), outputs=outputs)
    steps = (*steps_of((0,), (0,)), prompt, *steps_of((0,), (0,)))
    with pooled(path, plan_of(path, slots), setup) as model:
        assert_same_bits(model.run(steps), oracle.logits(path, setup, steps))
        # four misses in the first step, four hits in each of the others: the two before the prompt and the two after it
        assert per_layer(model.counts()) == [(counted(4, 16, 12, 12, 4), PhaseCounts(), 3)] * N_LAYER


@pytest.mark.parametrize("n_prompt", [9, 17, 33])
def test_last_layer_pruned_to_its_output_row_is_no_generation(n_prompt: int, model_file: ModelFile, oracle: Oracle) -> None:
    """One output row arrives in the last layer and would fit four slots; it belongs to a prompt that does not."""
    path, steps = model_file(SPEC), (Batch((1,) * n_prompt, outputs=LAST),)
    with pooled(path, plan_of(path, 4)) as model:
        assert_same_bits(model.run(steps), oracle.logits(path, Setup(), steps))
        assert per_layer(model.counts()) == [(PhaseCounts(), PhaseCounts(), 1)] * N_LAYER


def test_last_layer_of_a_served_prompt_is_counted_as_prompt(model_file: ModelFile, oracle: Oracle) -> None:
    """Every expert has a slot, so the prompt is served; its one row in the last layer is a prompt's row."""
    path, steps = model_file(SPEC), (Batch((0,) * 9, outputs=LAST),)
    with pooled(path, plan_of(path, "all")) as model:
        assert_same_bits(model.run(steps), oracle.logits(path, Setup(), steps))
        full, pruned = counted(1, 4, 0, 0, 36), counted(1, 4, 0, 0, 4)
        assert per_layer(model.counts()) == [(PhaseCounts(), full, 0), (PhaseCounts(), full, 0), (PhaseCounts(), pruned, 0)]


@pytest.mark.parametrize("n_tokens", [1, 3, 8, 9, 64, 150])
def test_all_experts_in_slots_serves_every_batch_size(n_tokens: int, model_file: ModelFile, oracle: Oracle) -> None:
    path, setup = model_file(SPEC), Setup(n_ubatch=64)
    steps = steps_of(range(n_tokens), range(n_tokens))
    counts = check_pooled(oracle, path, plan_of(path, "all"), steps, setup)
    generated, prompted, refused = total(counts)
    served = generated + prompted
    assert (served.misses, refused) == (N_LAYER * min(N_EXPERT, N_USED * n_tokens), 0)
    assert served.rows_hit + served.rows_copy == N_LAYER * 2 * n_tokens * N_USED


def test_a_layer_without_rows_is_not_refused(model_file: ModelFile, oracle: Oracle) -> None:
    """Of a prompt in three ubatches only the last has an output: the last layer gets no rows of the others, and refuses none."""
    path, setup = model_file(SPEC), Setup(n_ubatch=16)
    steps = (Batch((0,) * 48, outputs=LAST),)
    with pooled(path, plan_of(path, "all"), setup) as model:
        assert_same_bits(model.run(steps), oracle.logits(path, setup, steps))
        assert [group.refused for group in model.counts()] == [0, 0, 0]


def test_a_layer_without_rows_keeps_its_slots(model_file: ModelFile, oracle: Oracle) -> None:
    """The same prompt: bits and lookups are right, and the last layer sees its one row."""
    path, setup = model_file(SPEC), Setup(n_ubatch=16)
    steps = (*steps_of((0,)), Batch((0,) * 48, outputs=LAST), *steps_of((0,)))
    with pooled(path, plan_of(path, "all"), setup) as model:
        assert_same_bits(model.run(steps), oracle.logits(path, setup, steps))
        generated = [group.generation for group in model.counts()]
        prompted = [group.prompt for group in model.counts()]
    assert generated == [counted(2, 8, 4, 4, 4)] * N_LAYER
    assert prompted == [counted(3, 12, 12, 3 * 64, 0)] * 2 + [counted(1, 4, 4, 4, 0)]


def test_last_layer_follows_its_ubatch_when_it_has_the_most_slots(model_file: ModelFile, oracle: Oracle) -> None:
    """A plan may give each layer its own number of slots."""
    path, steps = model_file(SPEC), (*steps_of((0,)), Batch((1,) * 20, outputs=LAST), *steps_of((0,)))
    plan = plan_of(path, 4)
    plan = replace(plan, groups=(*plan.groups[:-1], replace(plan.groups[-1], slots=8)))
    with pooled(path, plan) as model:
        assert_same_bits(model.run(steps), oracle.logits(path, Setup(), steps))
        assert per_layer(model.counts()) == [(counted(2, 8, 4, 4, 4), PhaseCounts(), 1)] * N_LAYER


@pytest.mark.parametrize("slots", [(4, 8, 16), (16, 8, 4), (8, 4, 8), (16, 4, 16)])
def test_layers_with_slots_of_their_own_serve_what_fits_them(slots: tuple[int, ...], model_file: ModelFile, oracle: Oracle) -> None:
    """Two tokens fit eight slots and not four; seventeen fit sixteen of sixteen alone."""
    path = model_file(SPEC)
    plan = plan_of(path, 4)
    plan = replace(plan, groups=tuple(replace(group, slots=n) for group, n in zip(plan.groups, slots, strict=True)))
    steps = steps_of((0,), (0, 1), (0,), range(17), (1, 0), (0,))
    counts = check_pooled(oracle, path, plan, steps)
    assert [group.refused for group in counts] == [{4: 3, 8: 1, 16: 0}[n] for n in slots]


@pytest.mark.parametrize("n_rows", [7, 8, 9, 16, 40])
@pytest.mark.parametrize("type_", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q8_0"])
def test_all_rows_of_an_expert_go_through_one_call(type_: str, n_rows: int, model_file: ModelFile, oracle: Oracle) -> None:
    """Trap 14: the CPU takes another kernel for an expert with eight rows or more. Served and refused alike keep the bits."""
    path = model_file(replace(SPEC, n_layer=2, types={"*": type_}))
    steps = steps_of((0,) * n_rows, (0, 1) * (n_rows // 2))
    for slots in ("all", 4):
        refused = total(check_pooled(oracle, path, plan_of(path, slots), steps))[2]
        assert refused == (4 if slots == 4 else 0)


def test_known_routing_and_watched_routing_expect_the_same(model_file: ModelFile, oracle: Oracle) -> None:
    """The two ways of knowing what was asked for agree, prompts with one output included."""
    path, setup = model_file(SPEC), Setup(n_ubatch=16)
    steps: Steps = (*steps_of((0,), (1, 2, 3)), Batch(tuple(range(40)), outputs=LAST), *steps_of((5,)))
    plan = plan_of(path, 12)
    assert expected_counts(plan, rigged_ubatches(SPEC, steps, 16)) == expected_counts(plan, oracle.routing(path, setup, steps))
