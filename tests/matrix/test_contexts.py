"""Contexts and models side by side: pools, counters and bits of one never depend on another, alive or closed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from testkit import syn
from testkit.oracle import (
    Batch,
    Oracle,
    Setup,
    Steps,
    assert_same_bits,
    expected_counts,
    loaded,
    plan_of,
    pooled,
    running,
    steps_of,
)

ModelFile = Callable[[syn.Spec], Path]

SPEC = syn.Spec(n_layer=2, n_expert=16, n_expert_used=4, types={"*": "Q5_K"})
OTHER = replace(SPEC, arch="granite_swa", fused=True, n_expert=24, types={"*": "Q8_0"}, seed=2)
SETUP = Setup(n_ubatch=32)


def tokens(first: int, n: int = 20) -> Steps:
    """Steps of their own for every run: single tokens and a prompt that no pool here can take."""
    return (*(Batch(((first + 7 * i) % 250,)) for i in range(n)), Batch(tuple(range(first, first + 20))), *steps_of((first,), (first + 7,)))


def test_counters_of_two_contexts_are_the_sum_of_two_pools(model_file: ModelFile, oracle: Oracle) -> None:
    path, first, second = model_file(SPEC), tokens(3), tokens(40)
    with pooled(path, plan_of(path, 6), SETUP) as model:
        bits_first = model.run(first)
        bits_second = model.context().run(second)
        counts = model.counts()
    assert_same_bits(bits_first, oracle.logits(path, SETUP, first))
    assert_same_bits(bits_second, oracle.logits(path, SETUP, second))
    assert counts == expected_counts(plan_of(path, 6), oracle.routing(path, SETUP, first), oracle.routing(path, SETUP, second))


def test_two_contexts_of_a_model_take_turns_and_keep_their_own_pools(model_file: ModelFile, oracle: Oracle) -> None:
    """Step by step in turn: neither sees the other's slots, the counters are the sum of two reference pools."""
    path, first, second = model_file(SPEC), tokens(3), tokens(40)
    with pooled(path, plan := plan_of(path, 6), SETUP) as model:
        other = model.context()
        pairs = [(model.first.step(a), other.step(b)) for a, b in zip(first, second, strict=True)]
        counts = model.counts()
    assert_same_bits([a for a, _ in pairs if a is not None], oracle.logits(path, SETUP, first))
    assert_same_bits([b for _, b in pairs if b is not None], oracle.logits(path, SETUP, second))
    expected = expected_counts(plan, oracle.routing(path, SETUP, first), oracle.routing(path, SETUP, second))
    assert counts == expected


def test_two_contexts_decode_at_the_same_time(model_file: ModelFile, oracle: Oracle) -> None:
    """Two threads, one model, a pool each."""
    path, first, second = model_file(SPEC), tokens(3, 60), tokens(40, 60)
    with pooled(path, plan := plan_of(path, 6), SETUP) as model, ThreadPoolExecutor(2) as threads:
        other = model.context()
        running_first, running_second = threads.submit(model.first.run, first), threads.submit(other.run, second)
        bits_first, bits_second = running_first.result(), running_second.result()
        counts = model.counts()
    assert_same_bits(bits_first, oracle.logits(path, SETUP, first))
    assert_same_bits(bits_second, oracle.logits(path, SETUP, second))
    expected = expected_counts(plan, oracle.routing(path, SETUP, first), oracle.routing(path, SETUP, second))
    assert counts == expected


@pytest.mark.parametrize("closes_first", [True, False])
def test_closing_one_context_leaves_the_other(closes_first: bool, model_file: ModelFile, oracle: Oracle) -> None:
    path, steps = model_file(SPEC), tokens(3)
    with pooled(path, plan := plan_of(path, 6), SETUP) as model:
        stays, goes = model.first, model.context()
        if closes_first:
            stays, goes = goes, stays
        bits = stays.run(steps[:10])
        goes.run(steps)
        goes.close()
        bits += stays.run(steps[10:])
        counts = model.counts()
    assert_same_bits(bits, oracle.logits(path, SETUP, steps))
    # what the closed context did stays counted
    seen = oracle.routing(path, SETUP, steps)
    assert counts == expected_counts(plan, seen, seen)


def test_two_models_in_one_process_keep_apart(model_file: ModelFile, oracle: Oracle) -> None:
    paths = [model_file(SPEC), model_file(OTHER)]
    plans = [plan_of(paths[0], 5), plan_of(paths[1], 9)]
    steps = [tokens(3), tokens(60)]
    with ExitStack() as stack:
        models = [stack.enter_context(pooled(path, plan, SETUP)) for path, plan in zip(paths, plans, strict=True)]
        turns = [[model.first.step(step) for model, step in zip(models, pair, strict=True)] for pair in zip(*steps, strict=True)]
        counts = [model.counts() for model in models]
    for i in range(2):
        assert_same_bits([turn[i] for turn in turns if turn[i] is not None], oracle.logits(paths[i], SETUP, steps[i]))  # type: ignore[misc]
        assert counts[i] == expected_counts(plans[i], oracle.routing(paths[i], SETUP, steps[i]))


@pytest.mark.parametrize("closes_first", [True, False])
def test_closing_one_model_leaves_the_other(closes_first: bool, model_file: ModelFile, oracle: Oracle) -> None:
    paths, steps = (model_file(SPEC), model_file(OTHER)), tokens(3)
    order = paths if closes_first else paths[::-1]
    with ExitStack() as stack:
        goes = stack.enter_context(pooled(order[0], plan_of(order[0], 5), SETUP))
        stays = stack.enter_context(pooled(order[1], plan := plan_of(order[1], 5), SETUP))
        goes.run(steps)
        bits = stays.run(steps[:10])
        goes.close()
        bits += stays.run(steps[10:])
        counts = stays.counts()
    assert_same_bits(bits, oracle.logits(order[1], SETUP, steps))
    assert counts == expected_counts(plan, oracle.routing(order[1], SETUP, steps))


def test_the_same_file_twice_is_two_models(model_file: ModelFile, oracle: Oracle) -> None:
    path, steps = model_file(SPEC), tokens(3)
    with pooled(path, small := plan_of(path, 4), SETUP) as one, pooled(path, large := plan_of(path, 15), SETUP) as two:
        bits_one, bits_two = one.run(steps), two.run(steps)
        counts_one, counts_two = one.counts(), two.counts()
    plain, seen = oracle.logits(path, SETUP, steps), oracle.routing(path, SETUP, steps)
    assert_same_bits(bits_one, plain)
    assert_same_bits(bits_two, plain)
    assert (counts_one, counts_two) == (expected_counts(small, seen), expected_counts(large, seen))


def test_a_model_loaded_where_another_was_gets_its_own_experts(model_file: ModelFile, oracle: Oracle) -> None:
    """Addresses of an unloaded model are used again: residency must not be remembered by address. Same layout, other weights."""
    for seed in (1, 2, 3, 1):
        path, steps = model_file(replace(SPEC, seed=seed)), tokens(3, 6)
        with pooled(path, plan := plan_of(path, 8), SETUP) as model:
            assert_same_bits(model.run(steps), oracle.logits(path, SETUP, steps))
            assert model.counts() == expected_counts(plan, oracle.routing(path, SETUP, steps))


@pytest.mark.parametrize("n_before", [0, 3])
def test_a_plain_model_beside_a_pooled_one_stays_plain(n_before: int, model_file: ModelFile, oracle: Oracle) -> None:
    """Once the core is registered every context has its backends; a model that no session planned is not touched by them, and
    counts for nobody: neither after the pooled context has decoded nor right after it reserved its graphs."""
    path, other, steps = model_file(SPEC), model_file(OTHER), tokens(3)
    with pooled(path, plan_of(path, 6), SETUP) as model:
        model.run(steps[:n_before])
        before = model.counts()
        with loaded(other, SETUP) as plain, running(plain, SETUP) as context:
            assert_same_bits(context.run(steps), oracle.logits(other, SETUP, steps))
            assert plain.buffers <= {"CPU", "CPU_Mapped"}
        assert model.counts() == before


@pytest.mark.parametrize("outputs", ["all", "last"])
@pytest.mark.parametrize("newcomer", ["context", "pooled-model", "plain-model"])
def test_a_context_keeps_its_ubatch_when_a_newcomer_reserves(newcomer: str, outputs: str, model_file: ModelFile, oracle: Oracle) -> None:
    """Somebody's new context reserves graphs of 32 tokens while this one goes on with its graph of one: nothing of that is refused.
    And a prompt's graph that is used again after it is refused again, its one row in the last layer included."""
    path, other, single = model_file(SPEC), model_file(OTHER), Batch((5,))
    prompt = Batch(tuple(range(20)), outputs=outputs)
    steps = (single, single, prompt, prompt, single)
    bits = []
    with pooled(path, plan := plan_of(path, 6), SETUP) as model, ExitStack() as stack:
        for step in steps:
            bits += model.run((step,))
            if newcomer == "context":
                model.context()
            elif newcomer == "pooled-model":
                stack.enter_context(pooled(other, plan_of(other, 5), SETUP))
            else:
                stack.enter_context(running(stack.enter_context(loaded(other, SETUP)), SETUP))
        counts = model.counts()
        assert model.first.n_reused == 2
    assert_same_bits(bits, oracle.logits(path, SETUP, steps))
    assert counts == expected_counts(plan, oracle.routing(path, SETUP, steps))
    assert [group.refused for group in counts] == [2, 2]


def test_a_plain_context_is_nobodys_when_a_pooled_model_is_loaded_beside_it(model_file: ModelFile, oracle: Oracle) -> None:
    """It goes on with the graph it has, right after the other's context reserved its own."""
    path, other = model_file(SPEC), model_file(OTHER)
    single, own = steps_of((5,), (5,), (5,)), tokens(3)
    with pooled(path, plan_of(path, 6), SETUP), loaded(other, SETUP) as plain, running(plain, SETUP) as context:
        bits = context.run(single[:2])
        with pooled(path, plan := plan_of(path, 7), SETUP) as model:
            bits += context.run(single[2:])
            assert_same_bits(model.run(own), oracle.logits(path, SETUP, own))
            assert model.counts() == expected_counts(plan, oracle.routing(path, SETUP, own))
        assert context.n_reused == 2
    assert_same_bits(bits, oracle.logits(other, SETUP, single))


@pytest.mark.parametrize("setup", [Setup(n_ubatch=4), Setup(n_ctx=256, n_ubatch=64)], ids=["small-ubatch", "small-context"])
def test_a_second_context_may_have_other_shapes(setup: Setup, model_file: ModelFile, oracle: Oracle) -> None:
    path, steps = model_file(SPEC), tokens(3)
    with pooled(path, plan_of(path, 16), SETUP) as model:
        bits = model.run(steps[:5])
        bits_other = model.context(setup).run(steps)
        bits += model.run(steps[5:])
    assert_same_bits(bits, oracle.logits(path, SETUP, steps))
    assert_same_bits(bits_other, oracle.logits(path, setup, steps))


def test_slots_stay_where_they_are_over_a_long_prompt_and_a_growing_context(model_file: ModelFile, oracle: Oracle) -> None:
    """R33: prompts change the graph's shape and n_kv grows past its padding; pool and bits do not care."""
    path, setup = model_file(SPEC), Setup(n_ctx=1024, n_ubatch=32)
    single = tuple(Batch((i % 250,)) for i in range(90))
    # 90 + 200 + 90 + 100 + 90 tokens: past 256 and 512 cells
    steps = (*single, Batch(tuple(range(200)), outputs="last"), *single, Batch(tuple(range(100)), outputs="last"), *single)
    with pooled(path, plan := plan_of(path, 6), setup) as model:
        assert_same_bits(model.run(steps), oracle.logits(path, setup, steps))
        assert model.counts() == expected_counts(plan, oracle.routing(path, setup, steps))
