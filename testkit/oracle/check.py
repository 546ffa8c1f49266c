"""The whole claim about a pooled run in one call: the same bits as plain llama.cpp, and exactly the numbers of the reference pool."""

from __future__ import annotations

from pathlib import Path

from slotpool.native import GroupCounts
from slotpool.plan import Plan

from .compare import assert_same_bits
from .expect import expected_counts
from .plain import Oracle
from .pooled import pooled
from .script import Setup, Steps


def check_pooled(oracle: Oracle, path: Path, plan: Plan, steps: Steps, setup: Setup | None = None) -> list[GroupCounts]:
    """Runs the steps plain and pooled; AssertionError when a logit or a counter of any group differs. Returns the counters."""
    setup = setup or Setup()
    plain = oracle.logits(path, setup, steps)
    expected = expected_counts(plan, oracle.routing(path, setup, steps))
    with pooled(path, plan, setup) as model:
        assert_same_bits(model.run(steps), plain)
        counts = model.counts()
    assert counts == expected
    return counts
