"""2,000 tokens: one prompt four times, two others churning the pool in between. Its four replays are the same to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slotpool.native import GroupCounts
from testkit import syn
from testkit.oracle import Batch, Forget, Oracle, Setup, Steps, assert_same_bits, expected_counts, plan_of, pooled, total

ModelFile = Callable[[syn.Spec], Path]

SPEC = syn.Spec(n_layer=3, n_expert=32, n_expert_used=4, n_ff_exp=256, types={"gate": "Q4_K", "up": "Q4_K", "down": "Q6_K"})
SETUP = Setup(n_ctx=256, n_ubatch=64)
N_PROMPT, N_STEPS = 40, 160
ORDER = (0, 1, 2, 0, 1, 2, 0, 1, 2, 0)
"""Ten texts of 200 tokens: the first is the prompt, the others are the churn."""


def text(number: int) -> Steps:
    """A prompt in one batch, then token by token, from the start of an empty context."""
    tokens = tuple(np.random.default_rng(number).integers(0, 250, N_PROMPT + N_STEPS).tolist())
    return (Forget(), Batch(tokens[:N_PROMPT]), *(Batch((token,)) for token in tokens[N_PROMPT:]))


@pytest.mark.parametrize("policy", ["decay", "follow", "lru"])
def test_four_replays_in_2000_tokens_are_byte_identical(policy: str, model_file: ModelFile, oracle: Oracle) -> None:
    path, steps = model_file(SPEC), tuple(step for number in ORDER for step in text(number))
    with pooled(path, plan := plan_of(path, 10, policy=policy), SETUP) as model:
        bits = model.run(steps)
        counts = model.counts()
    texts = [bits[first : first + N_STEPS + 1] for first in range(0, len(bits), N_STEPS + 1)]
    replays = [b"".join(batch.tobytes() for batch in texts[i]) for i, number in enumerate(ORDER) if number == 0]
    assert sum(len(batch) for batch in bits) == 2000
    assert len(replays) == 4
    assert len(set(replays)) == 1
    assert_same_bits(bits, oracle.logits(path, SETUP, steps))
    assert counts == expected_counts(plan, oracle.routing(path, SETUP, steps))
    assert_pool_was_churned(counts)


def assert_pool_was_churned(counts: list[GroupCounts]) -> None:
    generated, prompted, refused = total(counts)
    assert (prompted.events, refused) == (0, len(ORDER) * SPEC.n_layer)
    assert generated.events == len(ORDER) * N_STEPS * SPEC.n_layer
    assert generated.misses > 100 * 10  # ten slots a layer were filled over and over
    assert generated.hits > generated.misses / 10
