"""`contexts first`: the first context of a model that computes has the pools, what else computes takes the experts from the store.

So are plans for programs, whose further contexts of the model are drafting ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool.plan import Plan
from testkit import syn
from testkit.oracle import Batch, Oracle, Setup, Steps, assert_same_bits, expected_counts, plan_of, pooled

ModelFile = Callable[[syn.Spec], Path]

SPEC = syn.Spec(n_layer=2, n_expert=16, n_expert_used=4, types={"*": "Q5_K"})
SETUP = Setup(n_ubatch=32)
PROMPT = Batch(tuple(range(20)))
"""No pool here can take it."""


def first(path: Path, slots: int = 6, **options: bool) -> Plan:
    return replace(plan_of(path, slots, **options), contexts="first")


def singles(start: int, n: int = 12) -> Steps:
    return tuple(Batch(((start + 7 * i) % 250,)) for i in range(n))


def test_only_the_context_that_computes_first_has_pools(model_file: ModelFile, oracle: Oracle) -> None:
    """In turn, prompts among them: the target's slots and counters are those of a run of its own."""
    path, target, draft = model_file(SPEC), (*singles(3), PROMPT, *singles(9)), (*singles(40), PROMPT, *singles(50))
    with pooled(path, plan := first(path), SETUP) as model:
        other = model.context()
        pairs = [(model.first.step(a), other.step(b)) for a, b in zip(target, draft, strict=True)]
        counts = model.counts()
    assert_same_bits([a for a, _ in pairs if a is not None], oracle.logits(path, SETUP, target))
    assert_same_bits([b for _, b in pairs if b is not None], oracle.logits(path, SETUP, draft))
    assert counts == expected_counts(plan, oracle.routing(path, SETUP, target))
    assert [group.refused for group in counts] == [1, 1]


def test_who_was_made_first_does_not_matter(model_file: ModelFile, oracle: Oracle) -> None:
    path, steps = model_file(SPEC), singles(3)
    with pooled(path, plan := first(path), SETUP) as model:
        other = model.context()
        bits = other.run(steps)
        model.run(singles(40))
        counts = model.counts()
    assert_same_bits(bits, oracle.logits(path, SETUP, steps))
    assert counts == expected_counts(plan, oracle.routing(path, SETUP, steps))


def test_a_prompt_that_fits_no_slots_is_computing_too(model_file: ModelFile, oracle: Oracle) -> None:
    """A server's first ubatch is a prompt, and a drafting context decodes single tokens before the target does."""
    path, later = model_file(SPEC), singles(3)
    with pooled(path, plan := first(path), SETUP) as model:
        draft = model.context()
        model.run((PROMPT,))
        bits = draft.run(singles(40))
        model.run(later)
        counts = model.counts()
    assert_same_bits(bits, oracle.logits(path, SETUP, singles(40)))
    assert counts == expected_counts(plan, oracle.routing(path, SETUP, (PROMPT, *later)))


def test_when_the_first_context_is_gone_the_next_one_has_pools(model_file: ModelFile, oracle: Oracle) -> None:
    path, steps, later = model_file(SPEC), singles(3), singles(60)
    with pooled(path, plan := first(path), SETUP) as model:
        other = model.context()
        model.run(steps)
        bits = other.run(steps)
        model.first.close()
        bits += other.run(later)
        counts = model.counts()
    assert_same_bits(bits, oracle.logits(path, SETUP, (*steps, *later)))
    seen = oracle.routing(path, SETUP, (*steps, *later))
    assert counts == expected_counts(plan, oracle.routing(path, SETUP, steps), seen[len(steps) :])


def test_a_program_that_makes_a_context_for_every_test_always_has_pools(model_file: ModelFile, oracle: Oracle) -> None:
    path, steps = model_file(SPEC), singles(3)
    with pooled(path, plan := first(path), SETUP) as model:
        model.run(steps)
        model.first.close()
        for _ in range(3):
            context = model.context()
            assert_same_bits(context.run(steps), oracle.logits(path, SETUP, steps))
            context.close()
        counts = model.counts()
    assert counts == expected_counts(plan, *[oracle.routing(path, SETUP, steps)] * 4)


@pytest.mark.parametrize("plan_contexts", ["all", "first"])
def test_experts_on_disk_are_served_to_every_context(plan_contexts: str, model_file: ModelFile, oracle: Oracle) -> None:
    """Nobody else can read them."""
    path, setup, steps = model_file(SPEC), replace(SETUP, load_mode="none"), (*singles(3), PROMPT)
    plan = replace(first(path, on_disk=True), contexts=plan_contexts)
    with pooled(path, plan, setup) as model:
        other = model.context()
        pairs = [(model.first.step(step), other.step(step)) for step in steps]
        counts = model.counts()
    for bits in zip(*pairs, strict=True):
        assert_same_bits([one for one in bits if one is not None], oracle.logits(path, setup, steps))
    seen = oracle.routing(path, setup, steps)
    assert counts == expected_counts(plan, seen, seen)
