"""Experts on disk: every shape is served from slots and reads alone, bit-equal to plain llama.cpp, with the reference pool's numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool import model as files
from testkit import syn
from testkit.oracle import (
    LAST,
    Batch,
    EngineError,
    Forget,
    Oracle,
    Reserve,
    Setup,
    Steps,
    assert_same_bits,
    check_pooled,
    expected_counts,
    last_graph,
    plan_of,
    pooled,
    rigged_ubatches,
    steps_of,
    total,
)

TYPES = ("F16", "BF16", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4")
ARCHS = ("qwen3moe", "gpt-oss", "grovemoe", "deepseek2", "llama4", "gemma4", "qwen3next", "nemotron_h_moe")
SPEC = syn.Spec(n_expert=16, n_expert_used=4, router="rigged", n_layer=2)
ODD = replace(SPEC, n_embd=288, n_head=9, n_ff_exp=288, types={"*": "MXFP4"})
"""Slabs of 44,064 bytes: no two neighbours begin equally far from a block of the disk, so no stride connects slots."""

PROMPT = tuple(range(64))
GENERATED = tuple((token,) for token in (3, 9, 3, 70, 9, 101, 3))


def mixed(n_ubatch: int = 80) -> Steps:
    """Prompts that pass, small batches, single tokens, and a prompt after decoding has churned the pool."""
    assert n_ubatch > len(PROMPT)
    return steps_of(PROMPT, *GENERATED, (1, 2, 3), tuple(range(9)), (5,), tuple(range(100, 164)), *GENERATED)


@pytest.mark.parametrize("slots", [4, 6, 12, 16])
@pytest.mark.parametrize("type_", TYPES)
def test_every_type_and_number_of_slots(oracle: Oracle, model_file: Callable[[syn.Spec], Path], type_: str, slots: int) -> None:
    spec = replace(SPEC, types={"*": type_})
    path, setup = model_file(spec), Setup(load_mode="none", n_ubatch=80)
    plan = plan_of(path, slots, on_disk=True)
    with pooled(path, plan, setup) as model:
        assert_same_bits(model.run(mixed()), oracle.logits(path, setup, mixed()))
        counts = model.counts()
    assert counts == expected_counts(plan, rigged_ubatches(spec, mixed(), setup.n_ubatch))
    generation, prompt, refused = total(counts)
    assert min(generation.lookups, prompt.lookups) > 0
    assert refused == 0


@pytest.mark.parametrize("slots", [4, 7, 16])
@pytest.mark.parametrize(
    "spec", [ODD, replace(ODD, arch="gpt-oss"), replace(ODD, arch="deepseek2", fused=True)], ids=lambda spec: spec.arch
)
def test_slabs_that_no_stride_connects(oracle: Oracle, model_file: Callable[[syn.Spec], Path], slots: int, spec: syn.Spec) -> None:
    path = model_file(spec)
    assert any(tensor.slab_bytes % 512 for tensor in files.read(path).experts), "the case is gone: choose other sizes"
    check_pooled(oracle, path, plan_of(path, slots, on_disk=True), mixed(), Setup(load_mode="none", n_ubatch=80))


@pytest.mark.parametrize("arch", ARCHS)
def test_every_layout(oracle: Oracle, model_file: Callable[[syn.Spec], Path], arch: str) -> None:
    path = model_file(syn.Spec(arch=arch, n_layer=4, n_expert=16, n_expert_used=4 if arch != "llama4" else 1))
    check_pooled(oracle, path, plan_of(path, 6, on_disk=True), mixed(), Setup(load_mode="none", n_ubatch=80))


@pytest.mark.parametrize("n_tokens", [1, 9, 64, 512])
def test_ubatch_sizes_that_change_in_between(oracle: Oracle, model_file: Callable[[syn.Spec], Path], n_tokens: int) -> None:
    path = model_file(SPEC)
    batch = tuple(token % 256 for token in range(n_tokens))
    steps = (*steps_of((7,), batch, (8,), (9, 10), batch), Forget(), *steps_of(batch[::-1], (7,), (8,)))
    check_pooled(oracle, path, plan_of(path, 6, on_disk=True), steps, Setup(load_mode="none", n_ctx=2048, n_ubatch=512))


@pytest.mark.parametrize("changes", [{"one_node_at_a_time": True}, {"reuse_graphs": False}, {"load_mode": "mmap"}, {"load_mode": "direct"}])
def test_however_the_engine_hands_over_its_graphs(
    oracle: Oracle, model_file: Callable[[syn.Spec], Path], changes: dict[str, bool | str]
) -> None:
    path = model_file(ODD)
    setup = replace(Setup(load_mode="none", n_ubatch=80), **changes)  # type: ignore[arg-type]
    check_pooled(oracle, path, plan_of(path, 6, on_disk=True), mixed(), setup)


@pytest.mark.parametrize("policy", ["lru", "decay", "follow"])
def test_a_prompt_leaves_a_full_pool_as_it_was(oracle: Oracle, model_file: Callable[[syn.Spec], Path], policy: str) -> None:
    path = model_file(SPEC)
    setup = Setup(load_mode="none", n_ubatch=80)
    plan = plan_of(path, 6, policy=policy, on_disk=True)
    decoded = steps_of(*GENERATED, *GENERATED)
    with pooled(path, plan, setup) as model:
        model.run(decoded)
        without = model.counts()
        model.run((Forget(), *steps_of(PROMPT), Forget()))
        model.session.reset_counts()
        model.run(decoded)
        after_prompt = model.counts()
    with pooled(path, plan, setup) as model:
        model.run(decoded)
        model.run((Forget(),))
        model.session.reset_counts()
        model.run(decoded)
        assert model.counts() == after_prompt
    assert without != after_prompt, "the first run was cold"


def test_a_prompt_fills_free_slots_with_what_it_uses_most(oracle: Oracle, model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(SPEC)
    setup = Setup(load_mode="none", n_ubatch=80)
    with pooled(path, plan_of(path, 8, on_disk=True), setup) as model:
        model.run(steps_of(PROMPT))
        assert total(model.counts())[1].hits == 0
        model.session.reset_counts()
        model.run(steps_of(PROMPT))
        assert [group.prompt.hits for group in model.counts()] == [8, 8]


def test_a_layer_is_one_split_of_four_nodes_for_prompts_too(model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(SPEC)
    setup = Setup(load_mode="none", n_ubatch=80, keeps_log=True)
    with pooled(path, plan_of(path, 6, on_disk=True), setup) as model:
        model.run(steps_of(PROMPT))
        splits = last_graph(model.first.log)
    ours = [split.ops for split in splits if split.backend == "SLOTPOOL-CPU"]
    assert ours == [["MUL_MAT_ID", "MUL_MAT_ID", "SWIGLU", "MUL_MAT_ID"]] * SPEC.n_layer


def test_several_contexts_read_the_same_file(oracle: Oracle, model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(ODD)
    setup = Setup(load_mode="none", n_ubatch=80)
    plain = oracle.logits(path, setup, mixed())
    with pooled(path, plan_of(path, 6, on_disk=True), setup) as model:
        second = model.context()
        for context in (model.first, second, model.first):
            context.run((Forget(),))
            assert_same_bits(context.run(mixed()), plain)


def test_a_prompt_whose_last_layer_has_one_row_passes_as_a_whole(oracle: Oracle, model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(SPEC)
    steps = (Batch(PROMPT, outputs=LAST), *steps_of((1,)), Reserve(), *steps_of((2,)))
    counts = check_pooled(oracle, path, plan_of(path, 6, on_disk=True), steps, Setup(load_mode="none", n_ubatch=80))
    assert counts[-1].prompt.lookups == SPEC.n_expert_used


def test_shards(oracle: Oracle, tmp_path: Path) -> None:
    shards = syn.write_shards(ODD, tmp_path / "odd", 4)
    plan = plan_of(shards[2], 6, on_disk=True)
    assert len(plan.files) == 4
    check_pooled(oracle, shards[0], plan, mixed(), Setup(load_mode="none", n_ubatch=80))


def test_a_later_layer_may_have_much_larger_slabs(oracle: Oracle, tmp_path: Path) -> None:
    """33 MiB a slab: more than the ring that the first layer alone would need."""
    spec = syn.Spec(n_expert=2, n_expert_used=1, n_embd=512, n_ff_exp=16896, types={"*": "Q4_0"}, types_per_layer={1: {"*": "F32"}})
    path = syn.write(spec, tmp_path / "m.gguf")
    steps = steps_of((1, 2, 3), (4,), (5, 6, 7))
    check_pooled(oracle, path, plan_of(path, 1, on_disk=True), steps, Setup(load_mode="none"))


def test_a_plan_of_another_model_is_noticed(model_file: Callable[[syn.Spec], Path]) -> None:
    path, other = model_file(SPEC), model_file(replace(SPEC, seed=2))
    with pooled(other, plan_of(path, 6, on_disk=True), Setup(load_mode="none")) as model:
        for _ in range(2):
            with pytest.raises(EngineError):
                model.run(steps_of((1,)))
            assert "Expected the experts of the model that was loaded, found others" in model.session.take_failure()


@pytest.mark.parametrize("slots", [7, 16])
def test_slabs_that_stay_are_brought_to_the_stride(oracle: Oracle, model_file: Callable[[syn.Spec], Path], slots: int) -> None:
    """Slabs move in their slots, one an event, after 32 hits, or one where every expert has a slot; what is computed stays the same."""
    path = model_file(ODD)
    singles = tuple((token,) for _ in range(30) for token in (3, 9, 14, 3, 70, 3))
    steps = steps_of(*singles, (3, 9, 14), PROMPT, (1, 2, 3), *singles[:20])
    counts = check_pooled(oracle, path, plan_of(path, slots, on_disk=True), steps, Setup(load_mode="none", n_ubatch=80))
    assert counts[0].generation.hits > 4 * 32
