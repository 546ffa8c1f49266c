"""The matrix can fail: damage of every kind is caught by the comparison and the equality that its cells use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from testkit import syn
from testkit.oracle import (
    Batch,
    BitsDifferError,
    Oracle,
    Pooled,
    Setup,
    Steps,
    assert_same_bits,
    expected_counts,
    plan_of,
    pooled,
    steps_of,
)

ModelFile = Callable[[syn.Spec], Path]

TYPES = ("F16", "BF16", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4")
RIGGED = syn.Spec(arch="granite_swa", n_expert=16, n_expert_used=4, router="rigged")
TWICE: Steps = steps_of((0, 1, 2), (0, 1, 2))
"""At most twelve experts of sixteen, then the same tokens again: what is wrong in a slot is used."""


def damaged_run(model: Pooled, group: int, swap_slots: bool) -> list[np.ndarray]:
    """The second batch finds experts in slots, and the slots damaged."""
    bits = model.run(TWICE[:1])
    n_used = model.counts()[group].generation.misses
    assert model.session.corrupt(group, swap_slots=swap_slots) == (n_used // 2 * 2 if swap_slots else n_used)
    return bits + model.run(TWICE[1:])


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("swap_slots", [True, False], ids=["wrong-slot-map", "one-byte-per-slot"])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "separate"])
@pytest.mark.parametrize("type_", TYPES)
def test_damaged_slots_are_caught(type_: str, fused: bool, swap_slots: bool, group: int, model_file: ModelFile, oracle: Oracle) -> None:
    # a random router: in a rigged model the first row of an expert's down is zero, and a changed byte of it says nothing
    path = model_file(replace(RIGGED, router="random", fused=fused, types={"*": type_}))
    plain = oracle.logits(path, Setup(), TWICE)
    with pooled(path, plan := plan_of(path, 12)) as model:
        bits = damaged_run(model, group, swap_slots)
        # the group's counters cannot know; the bits do, and not before the damage was done
        expected = expected_counts(plan, oracle.routing(path, Setup(), TWICE))
        assert model.counts()[: group + 1] == expected[: group + 1]
    assert_same_bits(bits[:1], plain[:1])
    with pytest.raises(BitsDifferError, match="batch 1"):
        assert_same_bits(bits, plain)


def test_the_same_run_without_damage_is_not_caught(model_file: ModelFile, oracle: Oracle) -> None:
    path = model_file(replace(RIGGED, types={"*": "Q4_K"}))
    with pooled(path, plan_of(path, 12)) as model:
        assert_same_bits(model.run(TWICE), oracle.logits(path, Setup(), TWICE))


@pytest.mark.parametrize("type_", TYPES)
def test_a_poisoned_slab_of_any_type_is_not_finite(type_: str, tmp_path: Path, oracle: Oracle) -> None:
    """POISON shows: an expert whose bytes are all 0xFF makes logits NaN or infinite, and the comparison refuses those even
    where both runs agree. The file itself is poisoned here: expert 0, which token 0 takes and token 1 does not."""
    path = syn.write(replace(RIGGED, types={"*": type_}), tmp_path / "m.gguf")
    poison_expert(path, 0)
    healthy, poisoned = oracle.logits(path, Setup(), steps_of((1,))), oracle.logits(path, Setup(), steps_of((0,)))
    assert_same_bits(healthy, healthy)
    with pytest.raises(BitsDifferError, match="NaN or infinite"):
        assert_same_bits(poisoned, poisoned)


def poison_expert(path: Path, expert: int) -> None:
    """Overwrites one expert of every expert tensor with 0xFF."""
    for tensor in GGUFReader(path, "r+").tensors:
        if "_exps.weight" in tensor.name:
            tensor.data.view(np.uint8)[expert] = 0xFF


def test_nan_equals_nothing_not_even_itself() -> None:
    nan = np.array([[0x7FC00000, 0x3F800000]], np.uint32)
    with pytest.raises(BitsDifferError, match="1 of 2 that are NaN or infinite"):
        assert_same_bits([nan], [nan])


def test_zeros_of_two_signs_differ() -> None:
    """Bits are compared, not numbers."""
    with pytest.raises(BitsDifferError, match="1 of 1 logits differ"):
        assert_same_bits([np.array([[0x80000000]], np.uint32)], [np.array([[0]], np.uint32)])


def test_a_missing_row_is_a_difference() -> None:
    with pytest.raises(BitsDifferError, match="shapes"):
        assert_same_bits([np.zeros((1, 4), np.uint32)], [np.zeros((2, 4), np.uint32)])


NUMBERS = ("events", "lookups", "hits", "misses", "rows_hit", "rows_copy", "rows_cpu", "bytes_copied", "bytes_saved")


@pytest.mark.parametrize("number", [*NUMBERS, "refused", "slab_bytes", "n_tensors", "slots"])
def test_any_number_that_is_off_by_one_is_seen(number: str, model_file: ModelFile, oracle: Oracle) -> None:
    """The equality of the cells looks at every counter of every group."""
    path = model_file(replace(RIGGED, types={"*": "Q4_K"}))
    with pooled(path, plan := plan_of(path, 12)) as model:
        model.run(TWICE)
        counts = model.counts()
    expected = expected_counts(plan, oracle.routing(path, Setup(), TWICE))
    assert counts == expected
    last = expected[-1]
    if number in NUMBERS:
        wrong = replace(last, generation=replace(last.generation, **{number: getattr(last.generation, number) + 1}))
    else:
        wrong = replace(last, **{number: getattr(last, number) + 1})
    assert counts != [*expected[:-1], wrong]


def test_routing_of_other_tokens_expects_other_numbers(model_file: ModelFile, oracle: Oracle) -> None:
    """The expectation follows the routing: that of another script does not fit this run."""
    path = model_file(replace(RIGGED, types={"*": "Q4_K"}))
    with pooled(path, plan := plan_of(path, 12)) as model:
        model.run(TWICE)
        assert model.counts() != expected_counts(plan, oracle.routing(path, Setup(), steps_of((0, 1, 2), (0, 1, 5))))


def test_the_oracle_runs_a_case_once(model_file: ModelFile, oracle: Oracle) -> None:
    path, steps = model_file(RIGGED), (Batch((3, 1, 4)),)
    before = oracle.n_runs
    assert oracle.logits(path, Setup(), steps) is oracle.logits(path, Setup(one_node_at_a_time=True, reuse_graphs=False), steps)
    assert oracle.n_runs == before + 1
