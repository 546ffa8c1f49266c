"""What users get of slots over a disk: outputs of plain llama.cpp as it is, or of one that repacks nothing where none may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slotpool
from slotpool import engine, page, plan, planning, probe
from slotpool import model as files
from slotpool.errors import SlotpoolError
from slotpool.native.probe import Matrices, Probe
from testkit import syn
from testkit.chaos.process import process

ModelFile = Callable[[syn.Spec], Path]

SPEC = syn.Spec(n_layer=2, n_expert=16, n_expert_used=4, types={"*": "Q4_0"})
OPTIONS: dict[str, Any] = {"n_ctx": 128, "n_ubatch": 32, "n_threads": 1, "n_threads_batch": 1, "logits_all": True}


def scored(path: Path, **options: Any) -> tuple[Any, Any]:
    """Bits of the logits of a prompt and of tokens after it, and the stats."""
    llm = slotpool.load(path, **OPTIONS, **options)
    try:
        llm.eval(list(range(40)))
        for token in (3, 77, 140, 3, 9):
            llm.eval([token])
        return llm.scores[: llm.n_tokens].view(np.uint32).copy(), slotpool.stats(llm)
    finally:
        llm.close()


@pytest.mark.parametrize("repack", [True, False])
@pytest.mark.parametrize("slots", [8, 16])
def test_outputs_are_those_of_plain_llama_cpp(model_file: ModelFile, slots: int, repack: bool) -> None:
    path = model_file(SPEC)
    plain = {way: scored(path, slots=0, repack=way)[0] for way in (True, False)}
    pooled, stats = scored(path, slots=slots, ram_budget="auto", repack=repack)
    assert stats["lookups"] > 0
    assert np.array_equal(pooled, plain[repack])
    engine_repacks = not np.array_equal(plain[True], plain[False])
    n_bytes = sum(tensor.slab_bytes * tensor.n_expert for tensor in files.read(path).experts)
    assert stats["repacked_bytes"] == (n_bytes if repack and engine_repacks else 0)


@pytest.mark.parametrize("n_used", [1, 4])
@pytest.mark.parametrize("kind", ["Q4_0", "F16", "MXFP4", "Q8_0"])
def test_the_probe_repacks_what_slots_hold_repacked(model_file: ModelFile, kind: str, n_used: int) -> None:
    path = model_file(syn.Spec(n_layer=1, n_expert=16, n_expert_used=n_used, types={"*": kind}))
    _, stats = scored(path, slots=8, ram_budget="auto")
    known = Probe(engine.function_address("ggml_backend_load"))
    asked = [one for one in probe.of_model(files.read(path), 1).weights if one.n_used]
    assert {known.repacks(replace(one, count=0, is_repacked=True)) for one in asked} == {stats["repacked_bytes"] > 0}
    assert stats["lookups"] > 0
    for one in asked:
        many: Matrices = replace(one, count=8, is_repacked=True)
        if stats["repacked_bytes"]:
            amount, _ = known.multiply("CPU", many, 1).repeat(0.0)
            assert amount % (one.n_used * one.ne0 * one.ne1 // 32) == 0
            assert amount > 0
        else:
            with pytest.raises(SlotpoolError, match=r"Expected weights that llama\.cpp repacks for CPU, found that it leaves these"):
                known.multiply("CPU", many, 1)


def test_a_model_that_stays_mapped_is_not_repacked(model_file: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where slots over a disk would not pay: what is repacked would have to fit memory."""
    path = model_file(SPEC)
    plain = {way: scored(path, slots=0, repack=way)[0] for way in (True, False)}
    for stays_mapped in (True, False):
        choice = planning.Choice(plan.all_off(files.read(path), "default", "off: no"), None, stays_mapped)
        monkeypatch.setattr(planning, "choose", lambda *_, choice=choice, **__: choice)
        found, stats = scored(path)
        assert stats["lookups"] == 0
        assert np.array_equal(found, plain[not stays_mapped])


def beside_a_device(path: Path) -> tuple[bool, int, bool]:
    """In a process with a device that computes nothing: whether logits are plain llama.cpp's, bytes repacked, what the probe says."""
    plain, _ = scored(path, slots=0)
    pooled, stats = scored(path, slots=8, ram_budget="auto")
    assert stats["lookups"] > 0
    known = Probe(engine.function_address("ggml_backend_load"))
    asked = [one for one in probe.of_model(files.read(path), 1).weights if one.n_used]
    return np.array_equal(pooled, plain), stats["repacked_bytes"], any(map(known.repacks, asked))


@pytest.mark.parametrize("has_host_memory", [False, True])
def test_beside_a_device_with_host_memory_of_its_own_nothing_is_repacked(model_file: ModelFile, has_host_memory: bool) -> None:
    """llama.cpp's loader prefers such memory for what the CPU computes."""
    path = model_file(SPEC)
    alone = scored(path, slots=8, ram_budget="auto")[1]["repacked_bytes"]
    with process({"host_memory": has_host_memory, "offload_batch": 1 << 20}) as made:
        is_equal, n_bytes, would_repack = made.submit(beside_a_device, path).result()
    assert is_equal
    assert n_bytes == (0 if has_host_memory else alone)
    assert would_repack == (n_bytes > 0)


def test_only_experts_of_files_are_repacked(model_file: ModelFile) -> None:
    _, stats = scored(model_file(SPEC), slots=8)
    assert (stats["store"], stats["repacked_bytes"], stats["lookups"] > 0) == ("memory", 0, True)


def test_other_processes_see_it(model_file: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    llm = slotpool.load(model_file(SPEC), 16, ram_budget="auto", **OPTIONS)
    try:
        llm.eval([3, 4, 5])
        (found,) = page.look([tmp_path / "slotpool"]).pages
        assert page.stats_of(found) == slotpool.stats(llm)
    finally:
        llm.close()
