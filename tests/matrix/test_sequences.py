"""Several sequences in one context: each says what it says alone, and the counters are those of the merged stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testkit import syn
from testkit.oracle import Batch, Context, Oracle, Setup, Steps, assert_same_bits, check_pooled, plan_of, pooled, total

ModelFile = Callable[[syn.Spec], Path]

SPEC = syn.Spec(n_layer=3, n_expert=16, n_expert_used=4, types={"*": "Q6_K"})
RIGGED = replace(SPEC, router="rigged")
"""Here routing cannot tip over: a batch of two is computed by other kernels than a batch of one, in plain llama.cpp as well."""
PROMPTS = {0: (7, 31, 5), 1: (90, 2), 2: (64, 64, 201, 8)}
N_TOKENS = 20


def setup_for(kv_unified: bool) -> Setup:
    return Setup(n_seq=3, kv_unified=kv_unified, n_ubatch=32)


def greedy_together(context: Context, busy: tuple[int, ...]) -> tuple[dict[int, list[int]], Steps]:
    """Greedy tokens of the busy sequences, decoded in one batch per step; and the steps that did it."""
    steps: list[Batch] = [Batch(PROMPTS[seq], (seq,) * len(PROMPTS[seq]), outputs="last") for seq in busy]
    said = {seq: [most_likely(context.decode(step))] for seq, step in zip(busy, steps, strict=True)}
    for _ in range(N_TOKENS - 1):
        steps.append(Batch(tuple(said[seq][-1] for seq in busy), busy))
        bits = context.decode(steps[-1])
        for row, seq in enumerate(busy):
            said[seq].append(most_likely(bits[row : row + 1]))
    return said, tuple(steps)


def served_ubatches(slots: int, busy: tuple[int, ...], kv_unified: bool) -> int:
    """Prompts and joint steps that fit. With a cache of its own per sequence, llama.cpp cuts a batch where numbers do not follow."""
    n_cuts = 2 if busy == (0, 2) and not kv_unified else 1
    sizes = [len(PROMPTS[seq]) for seq in busy] + [len(busy) // n_cuts] * n_cuts * (N_TOKENS - 1)
    return sum(4 * n_tokens <= slots for n_tokens in sizes)


def most_likely(bits: np.ndarray) -> int:
    return int(bits[-1].view(np.float32).argmax())


@pytest.mark.parametrize("kv_unified", [False, True], ids=["kv-split", "kv-unified"])
@pytest.mark.parametrize("busy", [(0, 1), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("slots", [4, 8, 12, 16])
def test_sequences_say_together_what_each_says_alone(
    slots: int, busy: tuple[int, ...], kv_unified: bool, model_file: ModelFile, oracle: Oracle
) -> None:
    """R32: same tokens as a solo run of plain llama.cpp; and the parallel run, bit for bit, with the counters of the merged stream."""
    path, setup = model_file(RIGGED), setup_for(kv_unified)
    with pooled(path, plan_of(path, slots), setup) as model:
        said, steps = greedy_together(model.first, busy)
    assert said == {seq: oracle.greedy(path, setup, PROMPTS[seq], N_TOKENS) for seq in busy}
    counts = check_pooled(oracle, path, plan_of(path, slots), steps, setup)
    assert counts[0].generation.events == served_ubatches(slots, busy, kv_unified)


@pytest.mark.parametrize(("n_tokens", "slots"), [(2, 8), (3, 12), (4, 16)])
def test_verified_drafts_are_generation_and_hit_the_pool(n_tokens: int, slots: int, model_file: ModelFile, oracle: Oracle) -> None:
    """R09: a speculative verification decodes 2 to 4 tokens at once; it is served whenever its distinct experts fit for sure."""
    path = model_file(SPEC)
    tokens = tuple(np.random.default_rng(n_tokens).integers(0, 250, 30 * n_tokens).tolist())
    steps = tuple(Batch(tokens[i : i + n_tokens]) for i in range(0, len(tokens), n_tokens))
    generated, prompted, refused = total(check_pooled(oracle, path, plan_of(path, slots), steps))
    assert (generated.events, prompted.events, refused) == (30 * SPEC.n_layer, 0, 0)
    assert generated.hits > 0


def test_sequences_that_come_and_go_share_one_pool(model_file: ModelFile, oracle: Oracle) -> None:
    """Sequences of unequal age in one batch, then one alone, then another: residency has nothing to do with who asked."""
    path, setup = model_file(SPEC), setup_for(False)
    steps: Steps = (
        Batch((1, 2, 3, 4), (0, 0, 0, 1)),
        Batch((9, 8), (0, 1)),
        Batch((9,), (2,)),
        Batch((5, 6, 7), (2, 0, 1)),
        Batch((11,), (0,)),
        Batch((12,), (2,)),
        Batch((13, 14), (2, 0)),
    )
    for slots in (4, 12):
        check_pooled(oracle, path, plan_of(path, slots), steps, setup)


def test_two_threads_give_the_same_bits(model_file: ModelFile, oracle: Oracle) -> None:
    """The engine's thread count reaches the pooled nodes; the oracle has as many."""
    path, setup = model_file(SPEC), Setup(n_threads=2)
    steps = (Batch((1,)), Batch((2,)), Batch((1,)), Batch(tuple(range(20))))
    with pooled(path, plan_of(path, 5), setup) as model:
        assert_same_bits(model.run(steps), oracle.logits(path, setup, steps))
