"""Slots over a disk in the layout that llama.cpp repacks weights to: bit-equal to plain llama.cpp, with the reference pool's numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testkit import syn
from testkit.oracle import (
    Forget,
    Oracle,
    Setup,
    Steps,
    assert_same_bits,
    expected_counts,
    loaded,
    plan_of,
    pooled,
    rigged_ubatches,
    steps_of,
    total,
)

ModelFile = Callable[[syn.Spec], Path]

TYPES = ("Q4_0", "Q2_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q8_0", "F16")
ARCHS = ("gpt-oss", "deepseek2", "qwen3next", "nemotron_h_moe")
SPEC = syn.Spec(n_expert=16, n_expert_used=4, router="rigged", n_layer=2)
LARGE = replace(SPEC, n_embd=1024, n_head=16, n_ff_exp=2080, types={"*": "Q4_0"}, n_expert=8, n_expert_used=2)
"""Slabs of 1,198,080 bytes: read in pieces, which begin anywhere in a block of the disk."""
SETUP = Setup(load_mode="none", n_ubatch=80, repack=True)
PROMPT = tuple(range(64))
GENERATED = tuple((token,) for token in (3, 9, 3, 70, 9, 101, 3))


def mixed() -> Steps:
    """Prompts that pass, small batches, single tokens, and a prompt after decoding has churned the pool."""
    return (*steps_of(PROMPT, *GENERATED, (1, 2, 3), tuple(range(9)), (5,)), Forget(), *steps_of(tuple(range(100, 164)), *GENERATED))


def is_repacked_by_the_engine(path: Path) -> bool:
    """Whether plain llama.cpp repacks anything of the file here."""
    with loaded(path, SETUP) as model:
        return any("REPACK" in name for name in model.buffers)


@pytest.mark.parametrize("slots", [4, 6, 12, 16])
@pytest.mark.parametrize("type_", TYPES)
def test_every_type_and_number_of_slots(oracle: Oracle, model_file: ModelFile, type_: str, slots: int) -> None:
    spec = replace(SPEC, types={"*": type_})
    path = model_file(spec)
    plan = replace(plan_of(path, slots, on_disk=True), is_repacked=True)
    with pooled(path, plan, SETUP) as model:
        assert_same_bits(model.run(mixed()), oracle.logits(path, SETUP, mixed()))
        counts = model.counts()
        assert bool(model.session.repacked_bytes()) == is_repacked_by_the_engine(path)
    assert counts == expected_counts(plan, rigged_ubatches(spec, mixed(), SETUP.n_ubatch))
    generation, prompt, refused = total(counts)
    assert min(generation.lookups, prompt.lookups) > 0
    assert refused == 0


@pytest.mark.parametrize("slots", [2, 5, 8])
def test_slabs_that_are_read_in_pieces(oracle: Oracle, model_file: ModelFile, slots: int) -> None:
    path = model_file(LARGE)
    plan = replace(plan_of(path, slots, on_disk=True), is_repacked=True)
    with pooled(path, plan, SETUP) as model:
        assert_same_bits(model.run(mixed()), oracle.logits(path, SETUP, mixed()))


@pytest.mark.parametrize("arch", ARCHS)
def test_every_layout(oracle: Oracle, model_file: ModelFile, arch: str) -> None:
    path = model_file(syn.Spec(arch=arch, n_layer=4, n_expert=16, n_expert_used=4, types={"*": "Q4_0"}))
    plan = replace(plan_of(path, 6, on_disk=True), is_repacked=True)
    with pooled(path, plan, SETUP) as model:
        assert_same_bits(model.run(mixed()), oracle.logits(path, SETUP, mixed()))
        assert bool(model.session.repacked_bytes()) == is_repacked_by_the_engine(path)


@pytest.mark.parametrize("slots", [6, 16])
@pytest.mark.parametrize(("type_", "chunk_type"), [("Q4_0", "F16"), ("F16", "Q4_0")])
def test_chunk_experts_stay_as_the_file_has_them(oracle: Oracle, model_file: ModelFile, type_: str, chunk_type: str, slots: int) -> None:
    """A token may ask for one of them twice, which the engine's kernels for repacked weights get wrong: plain llama.cpp is right with them
    where it repacks nothing."""
    types = {"*": type_, **dict.fromkeys(("gate_ch", "up_ch", "down_ch"), chunk_type)}
    path = model_file(syn.Spec(arch="grovemoe", n_layer=4, n_expert=16, n_expert_used=4, types=types))
    plan = replace(plan_of(path, slots, on_disk=True), is_repacked=True)
    repacks = type_ == "Q4_0" and is_repacked_by_the_engine(path)
    with pooled(path, plan, SETUP) as model:
        assert_same_bits(model.run(mixed()), oracle.logits(path, replace(SETUP, repack=repacks), mixed()))
        repacked = sum(group.slab_bytes * group.n_expert for group in plan.groups if group.pass_ == "exps")
        assert model.session.repacked_bytes() == (repacked if repacks else 0)


def test_contexts_compute_alike(oracle: Oracle, model_file: ModelFile) -> None:
    path = model_file(replace(SPEC, types={"*": "Q4_0"}))
    with pooled(path, replace(plan_of(path, 8, on_disk=True), is_repacked=True), SETUP) as model:
        for context in (model.first, model.context()):
            assert_same_bits(context.run(mixed()), oracle.logits(path, SETUP, mixed()))


def test_the_oracle_would_notice_the_other_layout(oracle: Oracle, model_file: ModelFile) -> None:
    path = model_file(replace(SPEC, types={"*": "Q4_0"}))
    if not is_repacked_by_the_engine(path):
        pytest.skip("this CPU repacks nothing")
    repacked, stored = oracle.logits(path, SETUP, mixed()), oracle.logits(path, replace(SETUP, repack=False), mixed())
    assert any(np.any(one != other) for one, other in zip(repacked, stored, strict=True))
