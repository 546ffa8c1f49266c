"""What users get of slots over a disk: outputs of plain llama.cpp as it is, or of one that repacks nothing where none may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slotpool
from slotpool import model as files
from slotpool import page
from testkit import syn

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
