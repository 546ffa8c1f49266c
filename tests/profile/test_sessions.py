"""From session to session: what one found hot the next begins with, by every way in, and no output changes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slotpool
from slotpool import profile
from slotpool.errors import REFUSED, SlotpoolError
from testkit import syn
from tests.exec.conftest import command, environment, programs
from tests.exec.conftest import run as run

__all__ = ["programs", "run"]  # fixtures
SPEC = syn.Spec(n_layer=3, n_expert=16, n_expert_used=4)
TOKENS = [3, 200, 3, 17, 99, 3, 41, 17, 250, 5, 3, 90]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def path(model_file: Callable[[syn.Spec], Path]) -> Path:
    return model_file(SPEC)


def session(path: Path, **options: Any) -> tuple[np.ndarray[Any, Any], Any]:
    """Logits after each token, and the stats."""
    llm = slotpool.load(path, n_ctx=64, n_threads=1, n_threads_batch=1, logits_all=True, repack=False, device="CPU", **options)
    try:
        for token in TOKENS:
            llm.eval([token])
        return llm.scores[: len(TOKENS)].copy(), slotpool.stats(llm)
    finally:
        llm.close()


@pytest.mark.parametrize("options", [{}, {"ram_budget": "auto"}], ids=["memory", "disk"])
def test_the_next_session_finds_more_and_says_the_same(path: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    place = tmp_path / "p"
    plain, _ = session(path, slots=0)
    cold_logits, cold = session(path, slots=8, save_profile=place, **options)
    warm_logits, warm = session(path, slots=8, profile=place, pin="25%", save_profile=place, **options)
    assert cold_logits.tobytes() == warm_logits.tobytes() == plain.tobytes()
    assert warm["lookups"] == cold["lookups"] > 0
    assert warm["hits"] > cold["hits"]
    assert (cold["warmed"], warm["warmed"], warm["pinned"]) == (0, 24, 6)
    copied = warm["generation"]["bytes_copied"] + warm["prompt"]["bytes_copied"]
    slab_bytes = warm["slot_bytes"] // 24
    assert warm["bytes_copied"] == copied + 24 * slab_bytes, "what slots began with is copied, and no phase has it"
    assert warm["tensors"][0]["pinned"] == 2
    assert "2 pinned" in warm["tensors"][0]["reason"]


def test_a_profile_is_of_what_was_asked_for(path: Path, tmp_path: Path) -> None:
    llm = slotpool.load(path, 16, n_ctx=64, n_threads=1, n_threads_batch=1, device="CPU", trace_path=tmp_path / "t.trace")
    for token in TOKENS:
        llm.eval([token])
    made = slotpool.save_profile(llm, tmp_path / "p")
    llm.close()
    assert profile.read(tmp_path / "p") == made
    assert profile.read(tmp_path / "t.trace").groups == made.groups, "the trace of the same session says the same"
    with pytest.raises(SlotpoolError, match="found a closed one"):
        slotpool.save_profile(llm, tmp_path / "p")


def test_a_pool_that_was_asked_for_nothing_has_no_profile(path: Path, tmp_path: Path) -> None:
    llm = slotpool.load(path, 8, n_ctx=64, device="CPU")
    with pytest.raises(SlotpoolError, match="expected experts that were asked for") as caught:
        slotpool.save_profile(llm, tmp_path / "p")
    llm.close()
    assert caught.value.exit_code == REFUSED
    assert not (tmp_path / "p").exists()


def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_loaded(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError, match="found a file that is no profile"):
        slotpool.load(path, 8, device="CPU", save_profile=path)


def test_a_program_keeps_a_profile_and_begins_with_it(run: Run, programs: Path, path: Path, tmp_path: Path) -> None:
    bench = next(iter(programs.rglob("llama-bench")))
    place = tmp_path / "p"
    arguments = ["-m", path, "-p", "0", "-n", "12", "-r", "1", "--no-warmup", "-t", "1", "-o", "json"]
    first = run(command(["--slots", "8", "--save-profile", place], [bench, *arguments]), env=environment())
    assert first.returncode == 0, first.stderr
    assert f"slotpool: profile in {place}" in first.stderr
    known = profile.read_profile(place)
    assert [group.layer for group in known.groups] == [0, 1, 2]
    assert sum(known.groups[0].rows) == 12 * 4
    second = run(
        command(["--slots", "8", "--profile", place, "--pin", "2", "--save-profile", place], [bench, *arguments]), env=environment()
    )
    assert second.returncode == 0, second.stderr
    assert ", 24 experts from the profile" in second.stderr
    json.loads(second.stdout)


def test_a_program_that_says_nothing_keeps_no_profile(run: Run, path: Path, tmp_path: Path) -> None:
    done = run(command(["--slots", "8", "--save-profile", tmp_path / "p"], ["true", "-m", path]), env=environment())
    assert done.returncode == REFUSED
    assert "no profile written" in done.stderr
    assert not (tmp_path / "p").exists()


def test_a_file_that_cannot_be_trusted_leaves_slots_cold_and_fails_in_words(tmp_path: Path) -> None:
    path = syn.write(SPEC, tmp_path / "m.gguf")
    plain, _ = session(path, slots=0)
    session(path, slots=8, ram_budget="auto", save_profile=tmp_path / "p")
    known = os.stat(path)
    options = {"n_ctx": 64, "n_threads": 1, "n_threads_batch": 1, "logits_all": True}
    llm = slotpool.load(path, 8, ram_budget="auto", profile=tmp_path / "p", **options)
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns + 10**9))
    with pytest.raises(SlotpoolError, match="changed"):
        llm.eval(TOKENS[:1])
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    llm.reset()
    for token in TOKENS:
        llm.eval([token])
    assert llm.scores[: len(TOKENS)].tobytes() == plain.tobytes()
    llm.close()
