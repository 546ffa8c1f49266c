"""Sharded models: any shard is accepted, all are read, a missing or wrong one is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slotpool import model
from slotpool.model.shards import shard_path
from tests.unit.test_model_builder import T, Typed, gguf_bytes, moe_keys, moe_tensors, shard_files, u16, write

ALL = moe_tensors()
# the first shard holds metadata only; layer 0 has its gate in the second and its down in the third
PARTS = [[], ALL[:5], ALL[5:8], ALL[8:]]


@pytest.mark.parametrize("given", range(4))
def test_any_shard_gives_the_facts_of_the_whole_model(tmp_path: Path, given: int) -> None:
    whole = model.read(write(tmp_path / "whole.gguf", gguf_bytes(moe_keys(), ALL)))
    facts = model.read(shard_files(tmp_path, PARTS)[given])
    assert facts.problems == ()
    assert [file.shard for file in facts.files] == [0, 1, 2, 3]
    for name in ("architecture", "n_layer", "n_expert", "n_expert_used", "expert_bytes", "other_bytes"):
        assert getattr(facts, name) == getattr(whole, name)
    assert [(e.name, e.slab_bytes) for e in facts.experts] == [(e.name, e.slab_bytes) for e in whole.experts]
    assert [e.shard for e in facts.experts if e.layer == 0] == [1, 1, 2]


def test_offset_is_that_of_the_shards_own_file(tmp_path: Path) -> None:
    facts = model.read(shard_files(tmp_path, PARTS)[0])
    for expert in facts.experts:
        raw = facts.file_of(expert.shard).path.read_bytes()
        index = PARTS[expert.shard].index(T(expert.name, expert.ne[:3]))
        assert raw[expert.offset : expert.offset + expert.n_bytes] == bytes([index]) * expert.n_bytes


def test_shards_are_sought_beside_the_file_not_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere").mkdir()
    shard_files(tmp_path / "models", PARTS)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert model.read("../models/m-00003-of-00004.gguf").problems == ()
    monkeypatch.chdir(tmp_path / "models")
    assert model.read("m-00003-of-00004.gguf").problems == ()


def test_links_of_a_hugging_face_cache_are_not_resolved(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for i, path in enumerate(shard_files(blobs, PARTS)):
        path.rename(blobs / f"sha{i}")
        (snapshot / path.name).symlink_to(f"../../blobs/sha{i}")
    facts = model.read(snapshot / "m-00002-of-00004.gguf")
    assert (facts.problems, len(facts.experts), facts.files[0].path.parent) == ((), 6, snapshot)
    (tmp_path / "link").symlink_to(snapshot)
    assert model.read(tmp_path / "link" / "m-00001-of-00004.gguf").problems == ()
    (found,) = model.read(blobs / "sha1").problems
    assert found.startswith("sha1 is shard 2 of 4, expected a name that ends in -00002-of-00004.gguf")


@pytest.mark.parametrize("missing", range(4))
def test_missing_shard_is_named(tmp_path: Path, missing: int) -> None:
    paths = shard_files(tmp_path, PARTS)
    paths[missing].unlink()
    facts = model.read(paths[(missing + 1) % 4])
    assert facts.problems == (f"missing shard: {paths[missing].name} (shard {missing + 1} of 4, expected in {tmp_path})",)
    assert [file.shard for file in facts.files] == [i for i in range(4) if i != missing]
    assert facts.n_shards == 4
    assert {e.shard for e in facts.experts} == {i for i in (1, 2, 3) if i != missing}


def test_link_to_a_shard_that_is_gone_counts_as_missing(tmp_path: Path) -> None:
    paths = shard_files(tmp_path, PARTS)
    paths[3].unlink()
    paths[3].symlink_to("nowhere")
    assert model.read(paths[0]).problems[0].startswith(f"missing shard: {paths[3].name}")


def test_single_file_that_kept_a_shards_name_is_a_single_file(tmp_path: Path) -> None:
    for keys in (moe_keys(), moe_keys(**{"split.count": u16(0), "split.no": u16(1)}), moe_keys(**{"split.count": u16(1)})):
        facts = model.read(write(tmp_path / "m-00002-of-00004.gguf", gguf_bytes(keys, ALL)))
        assert (facts.problems, facts.n_shards, len(facts.experts)) == ((), 1, 6)


def test_damage_is_told_with_the_shard_it_is_in(tmp_path: Path) -> None:
    paths = shard_files(tmp_path, PARTS)
    paths[2].write_bytes(paths[2].read_bytes()[:-7])
    assert model.read(paths[0]).problems[0].startswith(f"{paths[2].name}: truncated: {PARTS[2][-1].name!s} lacks ")


def test_shard_with_a_cut_header_is_one_problem(tmp_path: Path) -> None:
    paths = shard_files(tmp_path, PARTS)
    paths[2].write_bytes(paths[2].read_bytes()[:200])
    (found,) = model.read(paths[0]).problems
    assert found.startswith(f"{paths[2].name}: truncated: the file ends at byte 200 inside its header")


def test_shard_that_is_no_gguf_is_named(tmp_path: Path) -> None:
    paths = shard_files(tmp_path, PARTS)
    paths[1].write_bytes(b"version https://git-lfs")
    (found,) = model.read(paths[0]).problems
    assert found.startswith("unreadable shard: expected a GGUF file, found perhaps a Git LFS pointer")
    assert str(paths[1]) in found


def test_shards_that_disagree_about_the_set_are_named(tmp_path: Path) -> None:
    paths = shard_files(tmp_path, PARTS)
    paths[1].write_bytes(gguf_bytes({"split.no": u16(2), "split.count": u16(4)}, PARTS[1]))
    paths[2].write_bytes(gguf_bytes({"split.no": u16(2), "split.count": u16(5)}, PARTS[2]))
    assert model.read(paths[0]).problems == (
        "m-00002-of-00004.gguf says split.no 2, split.count 4; by its name it is 1 of 4, counted from 0",
        "m-00003-of-00004.gguf says split.no 2, split.count 5; by its name it is 2 of 4, counted from 0",
    )


def test_number_of_tensors_must_fit_the_claim(tmp_path: Path) -> None:
    assert model.read(shard_files(tmp_path, PARTS, claim=99)[0]).problems == (
        "the shards hold 11 tensors, expected 99 (split.tensors.count of the first)",
    )


def test_first_shard_must_have_the_claim(tmp_path: Path) -> None:
    paths = shard_files(tmp_path, PARTS)
    paths[0].write_bytes(gguf_bytes(moe_keys(**{"split.no": u16(0), "split.count": u16(4)}), []))
    assert model.read(paths[0]).problems == ("the shards hold 11 tensors, found no number (split.tensors.count of the first)",)


def test_tensor_that_is_in_two_shards_is_named(tmp_path: Path) -> None:
    found = model.read(shard_files(tmp_path, [ALL[:6], ALL[5:]])[0]).problems
    assert found == (f'the tensor name "{ALL[5].name!s}" is there twice, which llama.cpp refuses',)


def test_claim_of_very_many_shards_is_answered_at_once_and_in_few_words(tmp_path: Path) -> None:
    raw = gguf_bytes({"split.no": u16(0), "split.count": u16(9999)}, [])
    found = model.read(write(tmp_path / "m-00001-of-09999.gguf", raw)).problems
    assert (len(found) <= 8, found[5]) == (True, "... and 9993 more like this (missing)")


@pytest.mark.parametrize("count", [Typed(4, b"\xff" * 4), Typed(10, b"\xff" * 8), Typed(11, b"\xff" * 8), "many", [3, 2**31]])
def test_odd_claim_of_shards_ends_in_words(tmp_path: Path, count: object) -> None:
    facts = model.read(write(tmp_path / "m-00001-of-00003.gguf", gguf_bytes(moe_keys(**{"split.count": count}), ALL)))
    assert len(facts.experts) == 6
    assert count == "many" or facts.problems


@pytest.mark.parametrize("stem", ["", "a b", "gr\u00fc\u00df", "\u3000", "\U0001f999", "line\nend", os.fsdecode(b"\xff"), "x" * 234])
def test_shard_names_work_with_any_stem(tmp_path: Path, stem: str) -> None:
    paths = shard_files(tmp_path, PARTS, stem=stem)
    assert [shard_path(paths[2], i, 4) for i in range(4)] == paths
    assert model.read(paths[2]).problems == ()
