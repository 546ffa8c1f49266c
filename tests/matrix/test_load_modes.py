"""However the file gets into memory, the experts lie in the store as the file has them, and bits and numbers are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import slotpool
from testkit import syn
from testkit.oracle import (
    Batch,
    EngineError,
    Oracle,
    Setup,
    assert_same_bits,
    check_pooled,
    expected_counts,
    loaded,
    plan_of,
    pooled,
    steps_of,
    total,
)
from testkit.oracle.script import LOAD_MODES, batches

ModelFile = Callable[[syn.Spec], Path]

SPEC = syn.Spec(n_layer=2, n_expert=16, n_expert_used=4)
STEPS = (*(Batch((token,)) for token in (3, 77, 3, 140, 9, 77)), Batch(tuple(range(20))), *steps_of((3,), (4, 5), (9,)))
REPACKED = ("Q4_0", "Q4_K", "IQ4_NL", "MXFP4")
"""Types that llama.cpp keeps in a layout of its own on AVX2 when it may (R16)."""


@pytest.mark.parametrize("slots", [5, 8, 16])
@pytest.mark.parametrize("type_", ["F16", "Q4_K"])
@pytest.mark.parametrize("mode", LOAD_MODES)
def test_load_mode_changes_neither_bits_nor_counters(mode: str, type_: str, slots: int, model_file: ModelFile, oracle: Oracle) -> None:
    """R14: mapped, read, locked, direct."""
    path = model_file(replace(SPEC, types={"*": type_}))
    counts = check_pooled(oracle, path, plan_of(path, slots), STEPS, Setup(load_mode=mode))
    assert counts == expected_counts(plan_of(path, slots), oracle.routing(path, Setup(load_mode="mmap"), STEPS))
    assert_same_bits(oracle.logits(path, Setup(load_mode=mode), STEPS), oracle.logits(path, Setup(load_mode="mmap"), STEPS))


@pytest.mark.parametrize("mode", ["mmap", "none"])
@pytest.mark.parametrize("type_", REPACKED)
def test_experts_stay_unpacked_where_repacking_is_allowed(type_: str, mode: str, model_file: ModelFile, oracle: Oracle) -> None:
    """R16: with the engine's defaults the store takes planned experts before the CPU's own layouts do (`pooled` looks at the
    buffers); the oracle is the run without repacking."""
    path = model_file(replace(SPEC, types={"*": type_}))
    with pooled(path, plan := plan_of(path, 6), Setup(load_mode=mode, repack=True)) as model:
        assert_same_bits(model.run(STEPS), oracle.logits(path, Setup(), STEPS))
        assert model.counts() == expected_counts(plan, oracle.routing(path, Setup(), STEPS))


def test_the_oracle_would_notice_repacked_experts(model_file: ModelFile) -> None:
    """The check of the oracle's buffers can fail: plain llama.cpp repacks this very file when it may."""
    path = model_file(replace(SPEC, types={"*": "Q4_0"}))
    with loaded(path, Setup(repack=True)) as loose, loaded(path, Setup(repack=False)) as strict:
        if not any("REPACK" in name for name in loose.buffers):
            pytest.skip(f"this CPU repacks nothing: {sorted(loose.buffers)}")
        assert not any("REPACK" in name for name in strict.buffers)


@pytest.mark.parametrize("use_mmap", [True, False])
def test_slotpool_load_is_the_same_run(use_mmap: bool, model_file: ModelFile, oracle: Oracle) -> None:
    """The users' door: `slotpool.load` gives a llama_cpp.Llama whose logits are those of plain llama.cpp."""
    path = model_file(replace(SPEC, types={"*": "Q4_K"}))
    llm = slotpool.load(
        path,
        8,
        policy="decay",
        poison=True,
        n_ctx=512,
        n_ubatch=64,
        n_threads=1,
        n_threads_batch=1,
        logits_all=True,
        flash_attn=True,
        use_mmap=use_mmap,
    )
    try:
        for step in batches(STEPS):
            llm.eval(list(step.tokens))
        bits = llm.scores[: llm.n_tokens].view(np.uint32).copy()
        stats = slotpool.stats(llm)
    finally:
        llm.close()
    assert_same_bits([bits], [np.concatenate(oracle.logits(path, Setup(n_ubatch=64), STEPS))])
    generated, prompted, refused = total(expected_counts(plan_of(path, 8), oracle.routing(path, Setup(n_ubatch=64), STEPS)))
    served = generated + prompted
    assert (stats["lookups"], stats["hits"], stats["misses"]) == (served.lookups, served.hits, served.misses)
    assert (stats["refused"], stats["bytes_copied"], stats["bytes_saved"]) == (refused, served.bytes_copied, served.bytes_saved)
    assert stats["served"] == {"hit": served.rows_hit, "copy": served.rows_copy, "cpu": 0}


def test_a_plan_for_another_file_is_no_pooled_run(model_file: ModelFile) -> None:
    """A plan whose tensors the file does not have leaves nothing in the store; the kit refuses to call that pooled."""
    path, other = model_file(SPEC), model_file(replace(SPEC, arch="granite_swa", fused=True))
    plan = plan_of(other, 8, without=("down",))
    with pytest.raises(EngineError, match="slotpool-store"), pooled(path, plan):
        pass


@pytest.mark.parametrize("mode", ["mmap", "none"])
@pytest.mark.parametrize("contiguous", [True, False], ids=["by-layers", "dealt-round"])
def test_shards_are_one_model(contiguous: bool, mode: str, tmp_path: Path, oracle: Oracle) -> None:
    """A layer's gate, up and down lie in different files, each mapped into a store buffer of its own."""
    path = syn.write_shards(SPEC, tmp_path / "m", 3, contiguous=contiguous)[0]
    setup = Setup(load_mode=mode)
    for slots in (5, 16):
        check_pooled(oracle, path, plan_of(path, slots), STEPS, setup)
